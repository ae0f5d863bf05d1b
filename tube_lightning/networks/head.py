"""Log-probabilities of given tokens, without ever holding [tokens, vocabulary] logits.

A CPU takes the vocabulary piece by piece, so that logits stay in its cache; an accelerator, which
wants few large products, takes the tokens piece by piece. Neither waits for the device.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from tube_lightning.networks.precision import own_precision
from tube_lightning.networks.products import linear

_CACHED_LOGITS = 1 << 21
"""Aimed size of a piece of the logits on a CPU, in numbers (8 MiB): it should stay in the cache."""
_MIN_PIECE = 1024
HELD_LOGITS = 1 << 26
"""Most logits at a time elsewhere (256 MiB, and as much again for their log-softmax)."""


def token_log_probs(
    hidden: Float[Tensor, "tokens dim"],
    head: tuple[Tensor, Tensor],
    targets: Int64[Tensor, " tokens"],
) -> Float[Tensor, " tokens"]:
    """Return log softmax(head(hidden)) at the targets, in fp32 whatever autocast and TF32 say.

    The target's logit comes from the same product as the others, so that probabilities sum to one.
    The head may be kept in half precision.
    """
    by_piece = _by_vocabulary if hidden.device.type == "cpu" else _by_tokens
    with own_precision(hidden.device):
        return by_piece(hidden, head, targets).clamp(max=0.0)


def _by_vocabulary(
    hidden: Float[Tensor, "tokens dim"],
    head: tuple[Tensor, Tensor],
    targets: Int64[Tensor, " tokens"],
) -> Float[Tensor, " tokens"]:
    """Take some of the vocabulary at a time, with a running log-sum-exp."""
    piece = max(_MIN_PIECE, _CACHED_LOGITS // max(len(hidden), 1))
    log_normaliser = hidden.new_full((len(hidden),), -torch.inf)
    target_logit = torch.zeros_like(log_normaliser)
    start = 0
    for weight, bias in zip(head[0].split(piece), head[1].split(piece), strict=True):
        logits = linear(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype))
        log_normaliser = torch.logaddexp(log_normaliser, torch.logsumexp(logits, dim=-1))
        inside = (targets >= start) & (targets < start + len(bias))
        local = (targets - start).clamp(0, len(bias) - 1)
        picked = logits.gather(-1, local[:, None])[:, 0]
        target_logit = torch.where(inside, picked, target_logit)
        start += len(bias)
    return target_logit - log_normaliser


def _by_tokens(
    hidden: Float[Tensor, "tokens dim"],
    head: tuple[Tensor, Tensor],
    targets: Int64[Tensor, " tokens"],
) -> Float[Tensor, " tokens"]:
    """Take some tokens at a time: three launches each, however large the vocabulary.

    A head in half precision is widened once.
    """
    piece = max(1, HELD_LOGITS // len(head[1]))
    weight, bias = (t.to(hidden.dtype) for t in head)
    nats = [
        F.cross_entropy(linear(some, weight, bias), theirs, reduction="none")
        for some, theirs in zip(hidden.split(piece), targets.split(piece), strict=True)
    ]
    return -torch.cat(nats)
