"""A diffusion decoder as its own ARM: the same weights, read from left to right."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.arm import check_finite
from tube_lightning.networks.decoder import DecoderBlockModel
from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.head import token_log_probs
from tube_lightning.networks.precision import own_precision
from tube_lightning.networks.tokens import check_tokens


class DecoderARM(nn.Module):
    """The clean stream of a model whose clean tokens see those before them, and nothing else.

    Such a model was trained to predict the next token there, with the head that predicts hidden
    ones. It shares its weights with ``model``.
    """

    def __init__(self, model: DecoderBlockModel) -> None:
        super().__init__()
        if model.config.context != "causal":
            raise ValueError(
                "arm: expected a model whose clean tokens see those before them alone to be its "
                f"own ARM, got one whose context is {model.config.context!r}"
            )
        self.model = model

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the mask token's included."""
        return self.model.vocab_size

    @property
    def max_length(self) -> int:
        """Longest sequence the model was made for."""
        return self.model.max_length

    @torch.no_grad()
    def token_log_probs(
        self, tokens: Int64[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length-1"]:
        """Return log p(x[t + 1] | x[..t]) for every t, in fp32."""
        check_tokens(tokens, vocab_size=self.vocab_size, max_length=self.max_length)
        log_probs = torch.cat([self._score(some) for some in tokens.split(1)])
        check_finite(log_probs)
        return log_probs

    def _score(self, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, "batch length-1"]:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        positions = torch.arange(inputs.shape[1], device=tokens.device).expand_as(inputs)
        with own_precision(tokens.device):
            stream = self.model.run(
                inputs, positions, lambda _, own: attend_densely(*own, causal=True)
            )
        flat = stream.flatten(0, 1).float()
        return token_log_probs(flat, self.model.head, targets.flatten()).view_as(targets)
