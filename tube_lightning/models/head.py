"""Log-probabilities of given tokens, without ever holding [tokens, vocabulary] logits."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

_MAX_LOGITS = 1 << 21
"""Largest piece of the logits in memory, in numbers (8 MiB): it should stay in the cache."""
_MIN_PIECE = 1024


def token_log_probs(
    hidden: Float[Tensor, "tokens dim"],
    head: tuple[Tensor, Tensor],
    targets: Int64[Tensor, " tokens"],
) -> Float[Tensor, " tokens"]:
    """Return log softmax(head(hidden)) at the targets, in fp32.

    The vocabulary is taken piece by piece with a running log-sum-exp.
    """
    weight, bias = head
    piece = max(_MIN_PIECE, _MAX_LOGITS // max(len(hidden), 1))
    log_normaliser = hidden.new_full((len(hidden),), -torch.inf)
    for some_weight, some_bias in zip(weight.split(piece), bias.split(piece), strict=True):
        log_sum = torch.logsumexp(F.linear(hidden, some_weight, some_bias), dim=-1)
        log_normaliser = torch.logaddexp(log_normaliser, log_sum)
    return (hidden * weight[targets]).sum(dim=-1) + bias[targets] - log_normaliser
