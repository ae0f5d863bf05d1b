"""How well the demo models predict the held-out demo text, in bits per byte.

    python -m benchmarks.demo_models                        # the checkpoints of the package
    python -m benchmarks.demo_models --folder outputs/demo  # those of training runs

Same bytes for all: token 0 of every sequence is given and not counted. ARMs are exact, and so are
block models up to blocks of 8, by the lattice of revealed sets. Larger blocks have a bracket from
sampled orderings. What costs little is scored on all sequences; everything is scored on the same
few of them, evenly spaced, which are the numbers to compare.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float64, Int64
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from benchmarks.ngram import sequence_bits
from tube_lightning.bounds import elbo_k, tube_loo
from tube_lightning.checkpoints import read_checkpoint
from tube_lightning.data import TokenSequences, demo_sequences
from tube_lightning.demo import DEMO_CHECKPOINTS, demo_checkpoint
from tube_lightning.lattice import exact_log_likelihood
from tube_lightning.networks import BlockDiffusion, DiT, DiTARM
from tube_lightning.orderings import block_roles, distinct_sets, reveal_steps, reveal_times
from tube_lightning.scoring import conditional_rows, conditional_table

MAX_EXACT_SIZE = 8
NUM_ORDERINGS = 128
NGRAMS = (3, 4, 5)
CHEAP_SETS = 15
"""Revealed sets a block up to which all sequences are scored: those of blocks of 4."""

Estimates = dict[str, float]
Estimator = Callable[[Int64[Tensor, " length"], int], Estimates]
"""Tokens and the id of a sequence -> log p of all tokens but the first, in nats, by estimator."""


@dataclass(frozen=True)
class Measured:
    """Bits per scored byte of some sequences, by one estimator of one model."""

    model: str
    estimator: str
    bits: dict[int, float]
    """By the number of the sequence."""

    def summary(self, sequences: list[int]) -> str:
        """Return the mean over sequences and its standard error, or nothing if one lacks."""
        if not self.bits.keys() >= set(sequences):
            return ""
        bits = torch.tensor([self.bits[s] for s in sequences], dtype=torch.float64)
        error = bits.std().item() / math.sqrt(len(bits))
        return f"{bits.mean().item():.4f} ± {error:.4f}"


def make_estimator(network: DiT, num_orderings: int = NUM_ORDERINGS, seed: int = 0) -> Estimator:
    """Choose how a network is scored: exactly where that is cheap, else by sampled orderings."""
    if network.config.causal:
        arm = DiTARM.from_network(network)
        return lambda tokens, sequence: {
            "exact": arm.token_log_probs(tokens[None]).double().sum().item()
        }
    model = BlockDiffusion.from_network(network)
    if model.block_size <= MAX_EXACT_SIZE:
        return lambda tokens, sequence: {"exact, any order": exact_nats(model, tokens)}

    def bracket(tokens: Int64[Tensor, " length"], sequence: int) -> Estimates:
        scores = ordering_scores(model, tokens, sequence, num_orderings, seed)
        return {
            f"ELBO_{num_orderings}": elbo_k(scores).sum().item(),
            f"TUBE-LOO_{num_orderings}": tube_loo(scores).sum().item(),
        }

    return bracket


def exact_nats(model: BlockDiffusion, tokens: Int64[Tensor, " length"]) -> float:
    """Return the exact any-order log-likelihood."""
    roles = block_roles(len(tokens), model.block_size)
    return exact_log_likelihood(conditional_table(model, tokens[None], roles=roles)).sum().item()


def ordering_scores(
    model: BlockDiffusion,
    tokens: Int64[Tensor, " length"],
    sequence: int,
    num_orderings: int,
    seed: int,
) -> Float64[Tensor, "blocks orderings"]:
    """Return log p(block | order) of sampled orderings."""
    size = model.block_size
    roles = block_roles(len(tokens), size)
    times = reveal_times(
        seed, [sequence], range(len(roles)), num_orderings=num_orderings, size=size
    )[0]
    sets = distinct_sets(reveal_steps(times, None, roles[:, None]))
    table = conditional_rows(model, tokens[None], sets)
    return table[sets.index[0], torch.arange(size)].sum(dim=-1)


def measure_network(
    name: str,
    network: DiT,
    tokens: Int64[Tensor, "sequences length"],
    few: list[int],
    progress: Progress,
) -> list[Measured]:
    """Score all sequences where that costs little, else the few."""
    config = network.config
    cheap = config.causal or 2**config.block_size - 1 <= CHEAP_SETS
    sequences = list(range(len(tokens))) if cheap else few
    estimate, num_bytes = make_estimator(network), tokens.shape[1] - 1
    bits: dict[str, dict[int, float]] = {}
    for sequence in progress.track(sequences, description=name):
        for estimator, nats in estimate(tokens[sequence], sequence).items():
            bits.setdefault(estimator, {})[sequence] = -nats / math.log(2) / num_bytes
    return [Measured(name, estimator, values) for estimator, values in bits.items()]


def measure_ngrams(length: int) -> list[Measured]:
    """Score the baselines on all sequences."""
    bits = sequence_bits(demo_sequences("train", length), demo_sequences("heldout", length))
    return [
        Measured(f"byte {order}-gram", "exact", dict(enumerate(bits[order - 1].tolist())))
        for order in NGRAMS
    ]


def trained_folder(runs: Path, name: str) -> Path:
    """Return where ``train.py`` leaves the model of a run."""
    return runs / name / "model"


def print_table(rows: list[Measured], heldout: TokenSequences, few: list[int]) -> None:
    """Print one line an estimator of a model."""
    table = Table(
        title="Held-out demo text, bits per byte (± standard error over sequences)",
        caption=f"{len(heldout)} sequences of {heldout.length - 1} scored bytes, token ids "
        f"{heldout.sha256[:12]}; {len(few)} of them, evenly spaced, are scored by all models",
    )
    for heading in ("model", "estimator"):
        table.add_column(heading, no_wrap=True)
    for heading in (f"all {len(heldout)}", f"{len(few)} of them"):
        table.add_column(heading, justify="right", no_wrap=True)
    everything = list(range(len(heldout)))
    for row in rows:
        table.add_row(row.model, row.estimator, row.summary(everything), row.summary(few))
    Console().print(table)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo_models", description="Demo models on the held-out text."
    )
    parser.add_argument(
        "--folder", type=Path, help="of training runs <name>/model (default: the package's models)"
    )
    parser.add_argument("--models", nargs="+", choices=DEMO_CHECKPOINTS, default=DEMO_CHECKPOINTS)
    parser.add_argument(
        "--sequences", type=int, default=8, help="scored by every model (%(default)s)"
    )
    options = parser.parse_args()
    folders = {
        name: trained_folder(options.folder, name) if options.folder else demo_checkpoint(name)
        for name in options.models
    }
    networks = {name: read_checkpoint(folder) for name, folder in folders.items()}
    length = min(network.config.model_length for network in networks.values())
    heldout = demo_sequences("heldout", length)
    if not 2 <= options.sequences <= len(heldout):
        parser.error(f"--sequences: expected 2 to {len(heldout)}, got {options.sequences}")
    few = [i * len(heldout) // options.sequences for i in range(options.sequences)]
    rows = measure_ngrams(length)
    with Progress(console=Console(stderr=True)) as progress:
        for name, network in networks.items():
            rows += measure_network(name, network, heldout.tokens, few, progress)
    print_table(rows, heldout, few)


if __name__ == "__main__":
    main()
