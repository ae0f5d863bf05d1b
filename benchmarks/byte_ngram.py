"""How well byte n-grams predict the demo text: the baseline that a trained model must beat.

    python -m benchmarks.byte_ngram

Interpolated Kneser-Ney smoothing (Chen & Goodman 1999, section 2.7), trained on the training split
and scored on the packed held-out sequences, as models are: a context never reaches beyond its
sequence, and token 0 of each is given and not counted.
"""

import argparse
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from rich.console import Console
from rich.table import Table

from tube_lightning.data import TokenSequences, demo_sequences

NUM_BYTES = 256
MAX_ORDER = 5


@dataclass(frozen=True)
class GramCounts:
    """Counts of n-grams, coded as integers in base 256 and sorted, and of their contexts."""

    grams: Int64[np.ndarray, " grams"]
    counts: Int64[np.ndarray, " grams"]
    contexts: Int64[np.ndarray, " contexts"]
    context_totals: Int64[np.ndarray, " contexts"]
    context_types: Int64[np.ndarray, " contexts"]
    discount: float


def collect_counts(codes: Int64[np.ndarray, " tokens"]) -> GramCounts:
    """Count coded n-grams; the discount is n1 / (n1 + 2 n2), kept away from 0 and 1."""
    grams, counts = np.unique(codes, return_counts=True)
    contexts, starts = np.unique(grams // NUM_BYTES, return_index=True)
    ones, twos = (counts == 1).sum(), (counts == 2).sum()
    return GramCounts(
        grams,
        counts,
        contexts,
        np.add.reduceat(counts, starts),
        np.diff(np.append(starts, len(grams))),
        float((ones + 0.5) / (ones + 2 * twos + 1)),
    )


def gram_codes(
    tokens: Int64[np.ndarray, "*sequences length"], order: int
) -> Int64[np.ndarray, "*sequences windows"]:
    """Code every window of ``order`` tokens."""
    codes = tokens
    for offset in range(1, order):
        codes = codes[..., :-1] * NUM_BYTES + tokens[..., offset:]
    return codes


def kneser_ney(stream: Int64[np.ndarray, " tokens"], max_order: int) -> list[list[GramCounts]]:
    """Return the models of orders 1 to ``max_order``: each the counts of orders 1 to its own.

    Its highest order counts occurrences, a lower one the distinct bytes that precede an n-gram.
    """
    orders = range(1, max_order + 1)
    occurrences = [collect_counts(gram_codes(stream, order)) for order in orders]
    preceding = [
        collect_counts(longer.grams % NUM_BYTES**order)
        for order, longer in zip(orders, occurrences[1:], strict=False)
    ]
    return [[*preceding[:order], occurrences[order]] for order in range(max_order)]


def probabilities(
    levels: list[GramCounts], codes: Int64[np.ndarray, "*windows"]
) -> Float64[np.ndarray, "*windows"]:
    """Return the probability of the last byte of coded n-grams given the others.

    P(w | h) = max(c(hw) - D, 0) / c(h) + D types(h) / c(h) P(w | shorter h),   P() = 1 / 256
    """
    result = np.full(codes.shape, 1 / NUM_BYTES)
    for order, level in enumerate(levels, start=1):
        own = codes % NUM_BYTES**order
        count = _look_up(level.grams, level.counts, own)
        total = _look_up(level.contexts, level.context_totals, own // NUM_BYTES)
        types = _look_up(level.contexts, level.context_types, own // NUM_BYTES)
        kept = np.maximum(count - level.discount, 0) + level.discount * types * result
        result = np.where(total > 0, kept / np.maximum(total, 1), result)
    return result


def _look_up(
    keys: Int64[np.ndarray, " keys"],
    values: Int64[np.ndarray, " keys"],
    wanted: Int64[np.ndarray, "*windows"],
) -> Int64[np.ndarray, "*windows"]:
    """Return the value of each key, 0 where there is none."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def sequence_bits(
    train: TokenSequences, heldout: TokenSequences, max_order: int = MAX_ORDER
) -> Float64[np.ndarray, "orders sequences"]:
    """Return bits per scored byte of each held-out sequence, for orders 1 to ``max_order``.

    Near the start of a sequence, where the context is short, a shorter n-gram stands in.
    """
    stream, tokens = train.tokens.numpy().reshape(-1), heldout.tokens.numpy()
    bits = np.empty(tokens.shape)
    result = []
    for order, levels in enumerate(kneser_ney(stream, max_order), start=1):
        bits[:, order - 1 :] = -np.log2(probabilities(levels, gram_codes(tokens, order)))
        result.append(bits[:, 1:].mean(axis=1))
    return np.stack(result)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.byte_ngram", description="Byte n-grams on the demo text."
    )
    parser.add_argument("--length", type=int, default=256, help="bytes a sequence (%(default)s)")
    length = parser.parse_args().length
    train, heldout = demo_sequences("train", length), demo_sequences("heldout", length)
    table = Table(
        title="Byte n-grams, Kneser-Ney, held-out demo text",
        caption=f"trained on {train.num_tokens:,} bytes; scored on {len(heldout)} sequences of "
        f"{length - 1} bytes, token ids {heldout.sha256[:12]}",
    )
    for heading in ("n", "bits per byte", "standard error", "perplexity"):
        table.add_column(heading, justify="right", no_wrap=True)
    for order, bits in enumerate(sequence_bits(train, heldout), start=1):
        error = bits.std(ddof=1) / math.sqrt(len(bits))
        table.add_row(str(order), f"{bits.mean():.4f}", f"{error:.4f}", f"{2 ** bits.mean():.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
