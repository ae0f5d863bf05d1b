"""Log-probabilities of given tokens, without ever holding [tokens, vocabulary] logits."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tube_lightning.networks.products import linear

_MAX_LOGITS = 1 << 21
"""Aimed size of a piece of the logits, in numbers (8 MiB): it should stay in the cache."""
_MIN_PIECE = 1024


def token_log_probs(
    hidden: Float[Tensor, "tokens dim"],
    head: tuple[Tensor, Tensor],
    targets: Int64[Tensor, " tokens"],
) -> Float[Tensor, " tokens"]:
    """Return log softmax(head(hidden)) at the targets, in fp32 whatever autocast says.

    The vocabulary is taken piece by piece with a running log-sum-exp; the target's logit comes
    from the same product as the others, so that probabilities sum to one.
    """
    piece = max(_MIN_PIECE, _MAX_LOGITS // max(len(hidden), 1))
    log_normaliser = hidden.new_full((len(hidden),), -torch.inf)
    target_logit = torch.zeros_like(log_normaliser)
    start = 0
    with torch.autocast(hidden.device.type, enabled=False):
        for weight, bias in zip(head[0].split(piece), head[1].split(piece), strict=True):
            logits = linear(hidden, weight.to(hidden.dtype), bias)
            log_normaliser = torch.logaddexp(log_normaliser, torch.logsumexp(logits, dim=-1))
            inside = (targets >= start) & (targets < start + len(bias))
            local = (targets - start).clamp(0, len(bias) - 1)
            picked = logits.gather(-1, local[:, None])[:, 0]
            target_logit = torch.where(inside, picked, target_logit)
            start += len(bias)
    return (target_logit - log_normaliser).clamp(max=0.0)
