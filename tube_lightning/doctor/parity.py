"""Does the device compute what the CPU does? The embedded models, all regimes, both attentions.

The reference is a plain loop over rows on the CPU, which shares nothing with either way of
attending; from tokens to exact likelihoods and scores the path is that of an evaluation.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tube_lightning.checkpoints import load_arm, load_block_model
from tube_lightning.data import demo_sequences
from tube_lightning.doctor.findings import in_a_line, without_secrets
from tube_lightning.evaluator import Plan, score_batch
from tube_lightning.networks import (
    BlockDiffusion,
    DiTARM,
    NoisyRows,
    PlanAttention,
    default_attention,
    plan_grouped,
)
from tube_lightning.orderings import block_roles
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import Regime
from tube_lightning.scores import BlockScores

MODEL, ARM = "demo:bd3lm_l4", "demo:arm"
_NUM_SEQUENCES, _LENGTH = 2, 126  # the last block is ragged
_EXACT = Protocol(chunks=[2])
_SAMPLED = Protocol(chunks=[2], num_orderings=8, exact_max_block_size=0)
TOLERANCE = {"float32": 1e-3, "bfloat16": 1.0}
"""Nats a block. On a CPU rounding makes 1.4e-5 in fp32 and 0.27 in bf16, of blocks of 15 nats."""


@dataclass(frozen=True)
class RegimeParity:
    """The largest differences of one regime, in nats a block."""

    regime: str
    exact: float
    """of exact likelihoods, exact ELBOs and scores from the full table"""
    sampled: float
    """of scores of sampled orderings, from the sets that they reveal"""


@dataclass(frozen=True)
class PathParity:
    """One way of attending, against the reference."""

    path: str
    """default (what the device suggests) or grouped"""
    attention: str
    dtype: str
    tolerance: float
    regimes: Sequence[RegimeParity] = ()
    reason: str | None = None
    """why there is nothing to compare, in a line"""

    @property
    def largest(self) -> float:
        """The largest difference; not a number if any of them is none."""
        differences = [d for r in self.regimes for d in (r.exact, r.sampled)]
        return torch.tensor(differences or [torch.nan]).max().item()


@dataclass(frozen=True)
class Parity:
    """What was compared, and what torch warned of meanwhile."""

    blocks: int
    paths: Sequence[PathParity]
    arm: float
    """largest difference of the autoregressive model, in nats a block"""
    warnings: Sequence[str]

    def complaint(self) -> str | None:
        """Say in a line what is too far from the CPU, if anything is."""
        for path in self.paths:
            what = f"{path.path} attention ({path.attention}, {path.dtype})"
            if path.reason:
                return f"{what}: {path.reason}"
            if not path.largest <= path.tolerance:  # so that NaN is none
                return f"{what} is {path.largest:.1e} nats off, expected {path.tolerance:g}"
        if not self.arm <= TOLERANCE["float32"]:
            return f"the ARM is {self.arm:.1e} nats off, expected {TOLERANCE['float32']:g}"
        return None


def compare_with_cpu(device: torch.device) -> Parity:
    """Run the embedded models on the device, and plainly on the CPU."""
    model, arm = load_block_model(MODEL), load_arm(ARM)
    if not isinstance(model, BlockDiffusion) or not isinstance(arm, DiTARM):
        raise TypeError(f"{MODEL}, {ARM}: expected networks of ours, got other families")
    tokens = demo_sequences("heldout", _LENGTH, max_sequences=_NUM_SEQUENCES).tokens.long()
    roles = block_roles(_LENGTH, model.block_size).expand(len(tokens), -1, -1)

    def score(plan: PlanAttention | None, where: torch.device, dtype: str) -> list[BlockScores]:
        trunk = model.trunk.freeze(getattr(torch, dtype))
        theirs = BlockDiffusion(model.config, trunk, plan).to(where)
        arms = {"arm": DiTARM(arm.config, arm.trunk).to(where)}
        return [
            score_batch(theirs, arms, tokens.to(where), roles.to(where), range(len(tokens)), p)
            for p in (Plan(_EXACT, model.block_size), Plan(_SAMPLED, model.block_size))
        ]

    expected = score(plan_plainly, torch.device("cpu"), "float32")
    cases: list[tuple[str, PlanAttention | None, str]]
    cases = [("default", None, "float32"), ("grouped", plan_grouped, "float32")]
    if device.type == "cuda":  # on a CPU a product in bf16 may end the process
        cases += [("default", None, "bfloat16"), ("grouped", plan_grouped, "bfloat16")]
    paths, arms = [], [torch.nan]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name, plan, dtype in cases:
            chosen = plan or default_attention(device)
            path = (name, getattr(chosen, "__name__", "unnamed"), dtype, TOLERANCE[dtype])
            try:
                found = score(plan, device, dtype)
            except Exception as error:  # the other path is still to be compared
                paths.append(PathParity(*path, reason=in_a_line(error)))
                continue
            paths.append(PathParity(*path, regimes=_compare(found, expected)))
            arms = [_largest(f.arms, e.arms) for f, e in zip(found, expected, strict=True)]
    messages = dict.fromkeys(without_secrets(" ".join(str(w.message).split())) for w in told)
    return Parity(roles[..., 0].numel(), tuple(paths), max(arms), tuple(messages))


def plan_plainly(rows: NoisyRows, clean_length: int) -> Callable[..., Tensor]:
    """Plan the definition itself: a row's tokens see its sequence's tokens before it, and itself.

    One row at a time.
    """

    def attend(
        own: tuple[Tensor, Tensor, Tensor],
        clean_keys: Float[Tensor, "batch clean heads width"],
        clean_values: Float[Tensor, "batch clean heads width"],
    ) -> Float[Tensor, "rows size heads width"]:
        attended = []
        for row, (sequence, start) in enumerate(places):
            queries, own_keys, own_values = (p[row] for p in own)
            keys = torch.cat([clean_keys[sequence, :start], own_keys])
            values = torch.cat([clean_values[sequence, :start], own_values])
            scores = torch.einsum("qhw,khw->hqk", queries, keys) * queries.shape[-1] ** -0.5
            attended.append(torch.einsum("hqk,khw->qhw", scores.softmax(dim=-1), values))
        return torch.stack(attended)

    places = list(zip(rows.sequence.tolist(), rows.start.tolist(), strict=True))
    return attend


def _compare(
    found: Sequence[BlockScores], expected: Sequence[BlockScores]
) -> tuple[RegimeParity, ...]:
    """Compare the exact and the sampled scores of each regime."""
    return tuple(
        RegimeParity(
            Regime.parse(name).title,
            *(
                _largest(vars(ours.regimes[name]), vars(theirs.regimes[name]))
                for ours, theirs in zip(found, expected, strict=True)
            ),
        )
        for name in expected[0].regimes
    )


def _largest(found: Mapping[str, Tensor | None], expected: Mapping[str, Tensor | None]) -> float:
    """Return the largest difference of all tensors; not a number where one of them is none."""
    differences = [
        (found_here.cpu() - there).abs().max()
        for name, there in expected.items()
        if there is not None and (found_here := found[name]) is not None
    ]
    return torch.stack(differences).max().item()
