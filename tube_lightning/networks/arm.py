"""Models with an exact left-to-right likelihood."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.dit import DiT, DiTConfig
from tube_lightning.networks.head import token_log_probs
from tube_lightning.networks.precision import device_only
from tube_lightning.networks.tokens import check_tokens
from tube_lightning.networks.trunk import FrozenTrunk, Trunk, in_own_precision

_MAX_LOGITS = 1 << 28
"""Most logits of a transformers model at a time (1 GiB in fp32), unless one sequence has more."""


def check_finite(log_probs: Tensor) -> None:
    """Refuse NaN and infinities, naming the first."""
    bad = ~log_probs.isfinite()
    if bad.any():
        sequence, position = bad.nonzero()[0].tolist()
        raise ValueError(
            f"token_log_probs: expected finite numbers, got {log_probs[sequence, position].item()} "
            f"for sequence {sequence}, position {position + 1}"
        )


class DiTARM(nn.Module):
    """The AR baseline of BD3-LM and MDLM: one causal stream through a folded trunk."""

    def __init__(self, config: DiTConfig, trunk: Trunk) -> None:
        super().__init__()
        if not config.causal:
            raise ValueError("config: expected an autoregressive model, got a diffusion model")
        self.config = config
        self.frozen = FrozenTrunk(trunk)

    @classmethod
    def from_network(cls, network: DiT, dtype: torch.dtype = torch.float32) -> "DiTARM":
        """Fold a network's weights, with the trunk's matmuls in ``dtype``."""
        return cls(network.config, network.eval().fold().freeze(dtype))

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the mask token's included (it has probability zero)."""
        return self.config.vocab_size

    @property
    def max_length(self) -> int:
        """Longest sequence the model was made for."""
        return self.config.model_length

    @property
    def trunk(self) -> Trunk:
        """The network, on the device of this module."""
        return self.frozen.constants

    @in_own_precision
    def token_log_probs(
        self, tokens: Int64[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length-1"]:
        """Return log p(x[t + 1] | x[..t]) for every t, in fp32."""
        config, trunk = self.config, self.trunk
        check_tokens(
            tokens,
            vocab_size=config.vocab_size,
            max_length=self.max_length,
            mask_id=config.mask_id,
        )
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        positions = torch.arange(inputs.shape[1], device=tokens.device)
        x = trunk.run(inputs, positions, lambda _, own: attend_densely(*own, causal=True))
        flat = token_log_probs(trunk.final_norm(x).flatten(0, 1), trunk.head, targets.flatten())
        log_probs = flat.view_as(targets)
        check_finite(log_probs)
        return log_probs


class TransformersARM(nn.Module):
    """Any causal language model of transformers, in the dtype that it was loaded with."""

    model: Any

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval()

    @classmethod
    def from_pretrained(
        cls,
        source: str | PathLike[str],
        *,
        dtype: torch.dtype = torch.float32,
        revision: str | None = None,
    ) -> "TransformersARM":
        """Load a folder or hub id: safetensors only, all of them, and no remote code."""
        from transformers import AutoModelForCausalLM  # takes seconds to import

        auto: Any = AutoModelForCausalLM
        folder = Path(source).expanduser()
        try:
            model, report = auto.from_pretrained(
                folder if folder.is_dir() else source,
                dtype=dtype,
                revision=revision or "main",
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
        except (ValueError, OSError, RuntimeError) as error:
            raise ValueError(
                f"{source}: transformers reads no causal language model from it, without remote "
                f"code, which is never run ({str(error).splitlines()[0]})"
            ) from error
        if missing := sorted(report["missing_keys"]):
            raise ValueError(f"{source}: missing tensors {', '.join(missing)}")
        arm = cls(model)
        arm._check_causal(source)
        return arm

    def _check_causal(self, source: str | PathLike[str]) -> None:
        """Refuse encoders: transformers loads them as causal models, and they see the future."""
        length = min(8, self.max_length or 8, self.vocab_size)
        tokens = torch.arange(length, device=self.model.device)[None]
        other = tokens.clone()
        other[0, -1] = 0
        one, two = self.token_log_probs(tokens), self.token_log_probs(other)
        noise = 1e-4 if self.model.dtype == torch.float32 else 0.05
        if not torch.allclose(one[:, :-1], two[:, :-1], atol=noise):
            raise ValueError(f"{source}: expected a causal model, got one that sees later tokens")

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def max_length(self) -> int | None:
        """Longest sequence the model was made for, if it has a limit."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return limit if isinstance(limit, int) and limit > 0 else None

    @torch.no_grad()
    def token_log_probs(
        self, tokens: Int64[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length-1"]:
        """Return log p(x[t + 1] | x[..t]) for every t, in fp32."""
        check_tokens(tokens, vocab_size=self.vocab_size, max_length=self.max_length)
        sequences = max(1, _MAX_LOGITS // (tokens.shape[1] * self.vocab_size))
        with torch.autocast(tokens.device.type, enabled=False):
            log_probs = torch.cat([self._score_some(some) for some in tokens.split(sequences)])
        check_finite(log_probs)
        return log_probs

    def _score_some(self, tokens: Tensor) -> Tensor:
        # the whole model: what follows the head (scales, soft caps) differs between models
        logits: Tensor = self.model(tokens, use_cache=False).logits[:, :-1].float()
        true = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return true - logits.logsumexp(dim=-1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TransformersARM":
        """Follow a trainer to its device, never to its precision."""
        super()._apply(device_only(fn, self.model.device), recurse)  # type: ignore[no-untyped-call]
        return self
