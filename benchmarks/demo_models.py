"""How well the demo models predict a split of the demo text, in bits per byte.

    python -m benchmarks.demo_models                        # the package's, on the held-out text
    python -m benchmarks.demo_models --folder outputs/demo --split validation

Same tokens for all: token 0 of every sequence is given and not counted. ARMs are exact, and so are
block models up to blocks of 8, by the lattice of revealed sets. Larger blocks have a bracket from
sampled orderings. What costs little is scored on all sequences; everything is scored on the same
few of them, evenly spaced, which are the numbers to compare. Recipes are chosen on the validation
split; the held-out text is for the last word.
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
from tube_lightning.data import TokenSequences, demo_sequences, load_tokenizer
from tube_lightning.demo import DEMO_CHECKPOINTS, demo_checkpoint
from tube_lightning.lattice import exact_log_likelihood
from tube_lightning.networks import BlockDiffusion, DiT, DiTARM
from tube_lightning.orderings import block_roles, distinct_sets, reveal_steps, reveal_times
from tube_lightning.scoring import conditional_rows, conditional_table

MAX_EXACT_SIZE = 8
NUM_ORDERINGS = 128
NGRAMS = (2, 3, 4, 5)
CHEAP_SETS = 15
"""Revealed sets a block up to which all sequences are scored: those of blocks of 4."""

Estimates = dict[str, float]
Estimator = Callable[[Int64[Tensor, " length"], int], Estimates]
"""Tokens and the id of a sequence -> log p of all tokens but the first, in nats, by estimator."""


@dataclass(frozen=True)
class Measured:
    """Bits of some sequences, by one estimator of one model."""

    model: str
    estimator: str
    bits: dict[int, float]
    """By the number of the sequence."""

    def bits_per_byte(self, text: TokenSequences, sequences: list[int]) -> float | None:
        """Return all bits by all bytes of sequences, or nothing if one lacks."""
        if not self.bits.keys() >= set(sequences):
            return None
        return sum(self.bits[s] for s in sequences) / num_bytes(text, sequences)


def num_bytes(text: TokenSequences, sequences: list[int]) -> int:
    """Count the bytes of all tokens but the first of sequences."""
    if text.token_bytes is None:
        raise ValueError(f"{text.source}: expected to know the bytes of its tokens")
    return int(text.token_bytes[sequences, 1:].sum())


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
    estimate = make_estimator(network)
    bits: dict[str, dict[int, float]] = {}
    for sequence in progress.track(sequences, description=name):
        for estimator, nats in estimate(tokens[sequence], sequence).items():
            bits.setdefault(estimator, {})[sequence] = -nats / math.log(2)
    return [Measured(name, estimator, values) for estimator, values in bits.items()]


def measure_ngrams(train: TokenSequences, text: TokenSequences) -> list[Measured]:
    """Score the baselines on all sequences."""
    bits = sequence_bits(train, text, load_tokenizer(text.tokenizer).vocab_size)
    return [
        Measured(f"{order}-gram", "exact", dict(enumerate(bits[order - 1].tolist())))
        for order in NGRAMS
    ]


def trained_folder(runs: Path, name: str) -> Path:
    """Return where ``train.py`` leaves the model of a run."""
    return runs / name / "model"


def print_table(rows: list[Measured], text: TokenSequences, few: list[int]) -> None:
    """Print one line an estimator of a model."""
    table = Table(
        title=f"Bits per byte of {text.source}",
        caption=f"{len(text)} sequences of {text.length - 1} scored tokens, "
        f"{num_bytes(text, list(range(len(text)))):,} bytes, token ids {text.sha256[:12]}; "
        f"{len(few)} sequences, evenly spaced, are scored by all models",
    )
    for heading in ("model", "estimator"):
        table.add_column(heading, no_wrap=True)
    for heading in (f"all {len(text)}", f"{len(few)} of them"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = (row.bits_per_byte(text, some) for some in (list(range(len(text))), few))
        shown = ("" if value is None else f"{value:.4f}" for value in cells)
        table.add_row(row.model, row.estimator, *shown)
    Console().print(table)


def evenly_spaced(text: TokenSequences, count: int) -> list[int]:
    """Choose sequences over the whole text."""
    return [i * len(text) // count for i in range(count)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo_models", description="Demo models on the demo text."
    )
    parser.add_argument(
        "--folder", type=Path, help="of training runs <name>/model (default: the package's models)"
    )
    parser.add_argument("--models", nargs="+", choices=DEMO_CHECKPOINTS, default=DEMO_CHECKPOINTS)
    parser.add_argument("--split", choices=("heldout", "validation"), default="heldout")
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
    train, text = (demo_sequences(split, length) for split in ("train", options.split))
    if not 1 <= options.sequences <= len(text):
        parser.error(f"--sequences: expected 1 to {len(text)}, got {options.sequences}")
    few = evenly_spaced(text, options.sequences)
    rows = measure_ngrams(train, text)
    with Progress(console=Console(stderr=True)) as progress:
        for name, network in networks.items():
            rows += measure_network(name, network, text.tokens, few, progress)
    print_table(rows, text, few)


if __name__ == "__main__":
    main()
