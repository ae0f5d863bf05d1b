"""What a metric has summed: what can be added up over processes, and the rate that it makes."""

from typing import NamedTuple

import torch
from jaxtyping import Float64, Shaped
from torch import Tensor


class CorpusSums(NamedTuple):
    """Sums over the sequences of a corpus, of one metric or of several at once."""

    sum_nats: Float64[Tensor, "*metrics"]
    sum_squares: Float64[Tensor, "*metrics"]
    """of the sequences' nats"""
    sum_products: Float64[Tensor, "*metrics"]
    """of their nats and tokens"""
    log_sum_ratio: Float64[Tensor, "*metrics"]
    """of p_hat / psi, in log space: -inf where there are none"""
    num_ratios: Shaped[Tensor, "*metrics"]
    num_tokens: Shaped[Tensor, "*metrics"]
    num_sequences: Shaped[Tensor, "*metrics"]
    sum_token_squares: Shaped[Tensor, "*metrics"]

    def rate(self) -> Float64[Tensor, "*metrics"]:
        """Return the nats per token."""
        return (self.sum_nats + (self.log_sum_ratio.exp() - self.num_ratios)) / self.num_tokens

    def standard_error(self) -> Float64[Tensor, "*metrics"]:
        """Return the error of the rate as if sequences were independent; NaN for a single one."""
        rate = self.rate()
        squared_errors = (
            self.sum_squares - 2 * rate * self.sum_products + rate**2 * self.sum_token_squares
        )
        spread = self.num_sequences / (self.num_sequences - 1).double()
        error = (spread * squared_errors.clamp(min=0)).sqrt() / self.num_tokens
        return torch.where(self.num_sequences < 2, torch.nan, error)


def pack(sums: CorpusSums) -> Float64[Tensor, "sums metrics"]:
    """Put the sums of some metrics into one tensor on the CPU; whole numbers are exact to 2^53."""
    return torch.stack([values.double() for values in sums]).cpu()


def join(packed: Float64[Tensor, "parts sums metrics"]) -> CorpusSums:
    """Add up the sums of several processes, in their order; ratios by log-sum-exp."""
    return CorpusSums(
        *(
            torch.logsumexp(values, dim=0) if name == "log_sum_ratio" else values.sum(dim=0)
            for name, values in zip(CorpusSums._fields, packed.unbind(dim=1), strict=True)
        )
    )
