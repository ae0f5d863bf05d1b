"""How well n-grams predict the demo text: the baseline that a trained model must beat.

    python -m benchmarks.ngram                                  # the demo models' tokens
    python -m benchmarks.ngram --tokenizer byte --length 256

Interpolated Kneser-Ney smoothing (Chen & Goodman 1999, section 2.7), trained on the training split
and scored on the packed sequences of another, as models are: a context never reaches beyond its
sequence, and token 0 of each is given and not counted.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from rich.console import Console
from rich.table import Table

from tube_lightning.data import TokenSequences, demo_sequences, load_tokenizer

MAX_ORDER = 5


@dataclass(frozen=True)
class GramCounts:
    """Counts of n-grams, coded as integers and sorted, and of their contexts."""

    grams: Int64[np.ndarray, " grams"]
    counts: Int64[np.ndarray, " grams"]
    contexts: Int64[np.ndarray, " contexts"]
    context_totals: Int64[np.ndarray, " contexts"]
    context_types: Int64[np.ndarray, " contexts"]
    discount: float


def collect_counts(codes: Int64[np.ndarray, " tokens"], vocab_size: int) -> GramCounts:
    """Count coded n-grams; the discount is n1 / (n1 + 2 n2), kept away from 0 and 1."""
    grams, counts = np.unique(codes, return_counts=True)
    contexts, starts = np.unique(grams // vocab_size, return_index=True)
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
    tokens: Int64[np.ndarray, "*sequences length"], order: int, vocab_size: int
) -> Int64[np.ndarray, "*sequences windows"]:
    """Code every window of ``order`` tokens as a number in base ``vocab_size``."""
    codes = tokens
    for offset in range(1, order):
        codes = codes[..., :-1] * vocab_size + tokens[..., offset:]
    return codes


def kneser_ney(
    stream: Int64[np.ndarray, " tokens"], max_order: int, vocab_size: int
) -> list[list[GramCounts]]:
    """Return the models of orders 1 to ``max_order``: each the counts of orders 1 to its own.

    Its highest order counts occurrences, a lower one the distinct tokens that precede an n-gram.
    """
    orders = range(1, max_order + 1)
    occurrences = [
        collect_counts(gram_codes(stream, order, vocab_size), vocab_size) for order in orders
    ]
    preceding = [
        collect_counts(longer.grams % vocab_size**order, vocab_size)
        for order, longer in zip(orders, occurrences[1:], strict=False)
    ]
    return [[*preceding[:order], occurrences[order]] for order in range(max_order)]


def probabilities(
    levels: list[GramCounts], codes: Int64[np.ndarray, "*windows"], vocab_size: int
) -> Float64[np.ndarray, "*windows"]:
    """Return the probability of the last token of coded n-grams given the others.

    P(w | h) = max(c(hw) - D, 0) / c(h) + D types(h) / c(h) P(w | shorter h),   P() = 1 / vocab_size
    """
    result = np.full(codes.shape, 1 / vocab_size)
    for order, level in enumerate(levels, start=1):
        own = codes % vocab_size**order
        count = _look_up(level.grams, level.counts, own)
        total = _look_up(level.contexts, level.context_totals, own // vocab_size)
        types = _look_up(level.contexts, level.context_types, own // vocab_size)
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
    train: TokenSequences, scored: TokenSequences, vocab_size: int, max_order: int = MAX_ORDER
) -> Float64[np.ndarray, "orders sequences"]:
    """Return the bits of all tokens but the first of each sequence, for orders 1 to ``max_order``.

    Near the start of a sequence, where the context is short, a shorter n-gram stands in.
    """
    stream, tokens = train.tokens.numpy().reshape(-1), scored.tokens.numpy()
    bits = np.empty(tokens.shape)
    result = []
    for order, levels in enumerate(kneser_ney(stream, max_order, vocab_size), start=1):
        codes = gram_codes(tokens, order, vocab_size)
        bits[:, order - 1 :] = -np.log2(probabilities(levels, codes, vocab_size))
        result.append(bits[:, 1:].sum(axis=1))
    return np.stack(result)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ngram", description="N-grams on the demo text."
    )
    parser.add_argument("--tokenizer", default="demo", help="demo, byte, ... (%(default)s)")
    parser.add_argument("--length", type=int, default=128, help="tokens a sequence (%(default)s)")
    parser.add_argument("--split", default="heldout", choices=("heldout", "validation"))
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    train, scored = (
        demo_sequences(split, options.length, tokenizer=tokenizer)
        for split in ("train", options.split)
    )
    num_bytes, num_tokens = scored.num_scored_bytes, scored.num_tokens - len(scored)
    table = Table(
        title=f"N-grams of {tokenizer.name} tokens, Kneser-Ney, demo/{options.split}",
        caption=f"trained on {train.num_tokens:,} tokens; scored on {len(scored)} sequences, "
        f"{num_tokens:,} tokens of {num_bytes:,} bytes, token ids {scored.sha256[:12]}",
    )
    for heading in ("n", "bits per byte", "perplexity per token"):
        table.add_column(heading, justify="right", no_wrap=True)
    for order, bits in enumerate(sequence_bits(train, scored, tokenizer.vocab_size), start=1):
        total = bits.sum()
        table.add_row(str(order), f"{total / num_bytes:.4f}", f"{2 ** (total / num_tokens):.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
