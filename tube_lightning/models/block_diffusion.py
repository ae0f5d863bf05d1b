"""BD3-LM and MDLM as block models: the clean stream once, then only the noisy rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.models.attention import PlanAttention, default_attention
from tube_lightning.models.dit import DiT, DiTConfig
from tube_lightning.models.head import token_log_probs
from tube_lightning.models.protocols import NoisyRows
from tube_lightning.models.trunk import Trunk


@dataclass(frozen=True)
class CleanContext:
    """Keys and values of the clean tokens that rows may condition on, for each layer."""

    keys: tuple[Float[Tensor, "batch clean heads width"], ...]
    values: tuple[Float[Tensor, "batch clean heads width"], ...]


class BlockDiffusion(nn.Module):
    """A block model on a folded trunk; a full-sequence MDM is the case of one block.

    ``plan_attention`` overrides the implementation of attention that the device suggests.
    """

    def __init__(
        self, config: DiTConfig, trunk: Trunk, plan_attention: PlanAttention | None = None
    ) -> None:
        super().__init__()
        if config.causal:
            raise ValueError("config: expected a diffusion model, got an autoregressive one")
        self.config = config
        self.trunk = trunk
        self.plan_attention = plan_attention

    @classmethod
    def from_network(cls, network: DiT, dtype: torch.dtype = torch.float32) -> "BlockDiffusion":
        """Fold a network's weights, with the trunk's matmuls in ``dtype``."""
        return cls(network.config, network.eval().folded().frozen(dtype))

    @property
    def mask_id(self) -> int:
        """The token that stands for "hidden"."""
        return self.config.mask_id

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the mask token's included."""
        return self.config.vocab_size

    @property
    def block_size(self) -> int:
        """Number of positions in a block."""
        return self.config.block_size

    @property
    def max_length(self) -> int:
        """Longest sequence the model was made for."""
        return self.config.model_length

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "BlockDiffusion":
        """Move the trunk with the module; its dtypes are part of the model and stay."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.trunk = self.trunk.moved(fn(self.trunk.embedding).device)
        return self

    @torch.inference_mode()
    def encode(self, tokens: Int64[Tensor, "batch length"]) -> CleanContext:
        """Run the clean stream, block-causally, over all blocks that some row has before it."""
        trunk, size = self.trunk, self.block_size
        num_blocks_before = -(-tokens.shape[1] // size) - 1
        tokens = tokens[:, : num_blocks_before * size]
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        sees = (positions // size)[:, None] >= (positions // size)[None, :]
        rotary = trunk.rotary(positions)
        x = trunk.embedding[tokens]
        keys, values = [], []
        for index, layer in enumerate(trunk.layers):
            projections = layer.project(x, rotary)
            keys.append(projections.keys)
            values.append(projections.values)
            if index < len(trunk.layers) - 1 and tokens.numel():  # beyond is only read by rows
                q, k, v = (rearrange(p, "b length h w -> b h length w") for p in projections)
                attended = F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
                x = layer.finish(x, rearrange(attended, "b h length w -> b length h w"))
        return CleanContext(tuple(keys), tuple(values))

    @torch.inference_mode()
    def log_probs(self, context: CleanContext, rows: NoisyRows) -> Float[Tensor, " needed"]:
        """Return the log-probability of the true token at each needed position, in row order."""
        trunk, device = self.trunk, rows.tokens.device
        plan = self.plan_attention or default_attention(device)
        attend = plan(rows, context.keys[0].shape[1])
        rotary = trunk.rotary(rows.start[:, None] + torch.arange(self.block_size, device=device))
        x = trunk.embedding[rows.tokens.where(rows.revealed, self.mask_id)]  # [rows, size, dim]
        last = len(trunk.layers) - 1
        for index, (layer, keys, values) in enumerate(
            zip(trunk.layers, context.keys, context.values, strict=True)
        ):
            attended = attend(layer.project(x, rotary), keys, values)
            if index == last:  # from here on a token is on its own: go on with the needed ones
                x, attended = x[rows.needed], attended[rows.needed]
            x = layer.finish(x, attended)
        return token_log_probs(trunk.final_norm(x), trunk.head, rows.tokens[rows.needed])
