"""One uniform, one token: every draw is a function of its name alone."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from tube_lightning.placement import exactly, send
from tube_lightning.randomness import TOKENS, uniforms

_MAX_PROBABILITIES = 1 << 24
"""Most probabilities of a vocabulary in float64 at a time (128 MiB)."""


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
        exact = exactly(piece)
        scaled = exact - exact.amax(dim=-1, keepdim=True)
        probs = torch.softmax(scaled / temperature, dim=-1)
        if nucleus < 1:
            ordered, tokens = probs.sort(dim=-1, descending=True, stable=True)
            outside = ordered.cumsum(dim=-1) - ordered >= nucleus
            probs = torch.zeros_like(probs).scatter(-1, tokens, ordered.masked_fill(outside, 0))
        cumulative = probs.cumsum(dim=-1)
        total = cumulative[:, -1:]
        below = send(uniform, total.device)[:, None] * total  # a uniform is below one: so is this
        drawn.append(torch.searchsorted(cumulative, below, right=True)[:, 0])
    return send(torch.cat(drawn), logits.device)


def token_uniforms(
    seed: int, sequences: Sequence[int], roles: Int64[Tensor, "blocks size"]
) -> Float64[Tensor, "batch blocks size"]:
    """Draw the uniform of every token, each block from a stream of its own."""
    drawn = np.empty((len(sequences), *roles.shape))
    for (i, sequence), block in itertools.product(enumerate(sequences), range(len(roles))):
        drawn[i, block] = uniforms(TOKENS, seed, sequence, block, roles.shape[1])
    return torch.from_numpy(drawn)
