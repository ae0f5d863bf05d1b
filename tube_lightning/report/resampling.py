"""Re-seeds of the paper's protocol: every block resamples the bank that all blocks share.

For each re-seed a block draws as many orderings as the bank has, with replacement. The estimators
on such draws are about the *bank's mean* of p(x | order), not about p(x): TUBE bounds the former
from above. Only where the bank holds every ordering equally often are the two the same. The
default protocol draws fresh orderings for every block instead; docs/PROTOCOLS.md compares the two.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.bounds import cubo, isvgb, tube_loo, tube_split, tvo_upper
from tube_lightning.metrics import EstimatorSettings

_RESEED_STREAM = 2
"""Last word of Philox's counter; reveal times have 0 there, and sampled tokens 1."""
_WORDS = 4
"""A step of Philox's counter makes so many numbers."""
_SAFE_RANGE = 600.0
"""exp(-600) is a normal float64, and so are sums of it: no digit is lost."""
_MAX_ELEMENTS = 1 << 18
"""Blocks are taken in slices of about this many float64 numbers (2 MiB)."""


def reseed_uniforms(
    seed: int, sequences: Sequence[int], *, blocks: int, num: int, reseed: int
) -> Float64[Tensor, "batch blocks num"]:
    """Draw u ~ Uniform[0, 1) for every block and re-seed, as a function of their names alone.

    Philox4x64 with key (seed, sequence id); the counter is (place in the block's own range, 0,
    re-seed, stream). How many blocks there are, and which sequences are together, does not matter.
    """
    room = -(-num // _WORDS) * _WORDS
    bits = np.empty((len(sequences), blocks, room), dtype=np.uint64)
    for row, sequence in enumerate(sequences):
        key = np.array([seed, sequence], dtype=np.uint64)
        counter = np.array([0, 0, reseed, _RESEED_STREAM], dtype=np.uint64)
        bits[row].flat = np.random.Philox(key=key, counter=counter).random_raw(bits[row].size)
    return torch.from_numpy((bits[..., :num] >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def resampled(
    num: int, seed: int, sequences: Sequence[int], *, blocks: int, num_reseeds: int
) -> Int64[Tensor, "reseeds batch blocks orderings"]:
    """Draw ``num`` places of a bank of ``num``, with replacement, for every re-seed and block."""
    draws = [
        reseed_uniforms(seed, sequences, blocks=blocks, num=num, reseed=reseed)
        for reseed in range(num_reseeds)
    ]
    return (torch.stack(draws) * num).long()


def shuffled(
    num: int, seed: int, sequences: Sequence[int], *, blocks: int, num_reseeds: int
) -> Int64[Tensor, "batch blocks orderings"]:
    """Draw a random order of the bank for every block, by a stream that no re-seed uses."""
    return reseed_uniforms(seed, sequences, blocks=blocks, num=num, reseed=num_reseeds).argsort(-1)


def reseeded_values(
    bank: Float64[Tensor, "batch blocks orderings"],
    places: Int64[Tensor, "reseeds batch blocks orderings"],
    settings: EstimatorSettings,
) -> dict[str, Float64[Tensor, "reseeds batch blocks"]]:
    """Evaluate the estimators that the paper re-seeds, for every re-seed and block, in nats."""
    draws = bank.expand_as(places).gather(-1, places)
    num_orderings, pairs = bank.shape[-1], settings.isvgb_pairs
    values = {
        "cubo": cubo(draws, settings.cubo_beta),
        "tvo": resampled_tvo(bank, places, settings.tvo_partitions),
    }
    if num_orderings >= 2:
        values |= {"tube": tube_loo(draws), "tube_split": tube_split(draws)}
    if num_orderings % (2 * pairs) == 0:
        values["isvgb"] = isvgb(draws, pairs)
    return values


def resampled_tvo(
    bank: Float64[Tensor, "batch blocks orderings"],
    places: Int64[Tensor, "reseeds batch blocks orderings"],
    partitions: int,
) -> Float64[Tensor, "reseeds batch blocks"]:
    """Return ``tvo_upper`` of every resample, exponentiating the bank once for all of them.

    A resample is the bank with counts n_k, so each point b of the grid needs two products with
    the same powers: TVO_U = mean_b ( sum_k n_k s_k e^(b s_k) / sum_k n_k e^(b s_k) ). Blocks whose
    scores spread so far that powers would underflow take the plain way.
    """
    num_reseeds, batch, blocks, num = places.shape
    places = places.flatten(1, 2).transpose(0, 1)
    scores = bank.flatten(0, 1)
    lowest = scores.min(dim=-1).values
    safe = scores.max(dim=-1).values - lowest < _SAFE_RANGE
    values = scores.new_empty(len(scores), num_reseeds)
    plain = scores[~safe][:, None].expand(-1, num_reseeds, -1).gather(-1, places[~safe])
    values[~safe] = tvo_upper(plain, partitions)
    rows = max(1, _MAX_ELEMENTS // (num * partitions))
    done = [
        _tvo_of_counts(some, where, partitions)
        for some, where in zip(scores[safe].split(rows), places[safe].split(rows), strict=True)
    ]
    values[safe] = torch.cat(done)
    return values.T.reshape(num_reseeds, batch, blocks)


def _tvo_of_counts(
    scores: Float64[Tensor, "rows orderings"],
    places: Int64[Tensor, "rows reseeds orderings"],
    partitions: int,
) -> Float64[Tensor, "rows reseeds"]:
    """Evaluate the formula of ``resampled_tvo`` on finite scores."""
    counts = torch.zeros(places.shape, dtype=torch.float64)
    counts.scatter_add_(-1, places, torch.ones_like(counts))
    largest = scores.max(dim=-1, keepdim=True).values
    shifted = scores - largest
    grid = torch.arange(1, partitions + 1, dtype=torch.float64) / partitions
    powers = torch.exp(shifted[:, :, None] * grid)  # [rows, orderings, partitions]
    below = counts @ powers  # [rows, reseeds, partitions]
    above = (counts * shifted[:, None]) @ powers
    return largest + (above / below).mean(dim=-1)
