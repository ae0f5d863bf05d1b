"""One uniform, one token: every draw is a function of its name alone."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

_MAX_PROBABILITIES = 1 << 24
"""Most probabilities of a vocabulary in float64 at a time (128 MiB)."""
_TOKEN_STREAM = 1
"""Last word of Philox's counter for tokens; reveal times have 0 there."""


def draw_tokens(
    logits: Float[Tensor, "tokens vocab"],
    uniforms: Float64[Tensor, " tokens"],
    *,
    temperature: float = 1.0,
    nucleus: float = 1.0,
) -> Int64[Tensor, " tokens"]:
    """Turn one uniform each into tokens, by the inverse of the cumulative distribution.

    The distribution is softmax(logits / temperature), cut to its nucleus: the most probable tokens
    up to the first at which their sum reaches ``nucleus`` (Holtzman et al. 2020), the lower
    id first among equals.

    >>> logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(3, -1)
    >>> draw_tokens(logits, torch.tensor([0.1, 0.6, 0.9]).double()).tolist()
    [0, 1, 2]
    >>> draw_tokens(logits, torch.tensor([0.1, 0.6, 0.9]).double(), nucleus=0.7).tolist()
    [0, 0, 1]
    """
    some = max(1, _MAX_PROBABILITIES // logits.shape[1])
    drawn = []
    for piece, uniform in zip(logits.split(some), uniforms.split(some), strict=True):
        scaled = piece.double() - piece.amax(dim=-1, keepdim=True)
        probs = torch.softmax(scaled / temperature, dim=-1)
        if nucleus < 1:
            ordered, tokens = probs.sort(dim=-1, descending=True, stable=True)
            outside = ordered.cumsum(dim=-1) - ordered >= nucleus
            probs = torch.zeros_like(probs).scatter(-1, tokens, ordered.masked_fill(outside, 0))
        cumulative = probs.cumsum(dim=-1)
        below = uniform[:, None] * cumulative[:, -1:]  # a uniform is below one: so is the total
        drawn.append(torch.searchsorted(cumulative, below, right=True)[:, 0])
    return torch.cat(drawn)


def token_uniforms(
    seed: int, sequences: Sequence[int], roles: Int64[Tensor, "blocks size"]
) -> Float64[Tensor, "batch blocks size"]:
    """Draw the uniform of every token, each block from a Philox stream of its own.

    The key is that of ``reveal_times``, (seed, sequence id); the counter's upper half is
    (block, 1) where reveal times have (block, 0).
    """
    bits = np.empty((len(sequences), *roles.shape), dtype=np.uint64)
    for (i, sequence), block in itertools.product(enumerate(sequences), range(len(roles))):
        key = np.array([seed, sequence], dtype=np.uint64)
        counter = np.array([0, 0, block, _TOKEN_STREAM], dtype=np.uint64)
        bits[i, block] = np.random.Philox(key=key, counter=counter).random_raw(roles.shape[1])
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)
