"""BD3-LM and MDLM as block models: the clean stream once, then only the noisy rows."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.attention import Attend, PlanAttention, default_attention
from tube_lightning.networks.dit import DiT, DiTConfig
from tube_lightning.networks.head import token_log_probs
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.trunk import FrozenTrunk, Projections, Trunk, in_own_precision


@dataclass(frozen=True)
class CleanContext:
    """Keys and values of the clean tokens that rows may condition on, for each layer."""

    keys: tuple[Float[Tensor, "batch clean heads width"], ...]
    values: tuple[Float[Tensor, "batch clean heads width"], ...]

    @property
    def length(self) -> int:
        """Number of clean tokens of each sequence."""
        return self.keys[0].shape[1]


def _attend(
    queries: Float[Tensor, "rows size heads width"],
    keys: Float[Tensor, "rows seen heads width"],
    values: Float[Tensor, "rows seen heads width"],
) -> Float[Tensor, "rows size heads width"]:
    """Let the tokens of each row attend to all of its keys."""
    q, k, v = (rearrange(p, "rows t h w -> rows h t w") for p in (queries, keys, values))
    return rearrange(F.scaled_dot_product_attention(q, k, v), "rows h t w -> rows t h w")


def _attend_behind(
    own: Projections,
    clean_keys: Float[Tensor, "rows clean heads width"],
    clean_values: Float[Tensor, "rows clean heads width"],
) -> Float[Tensor, "rows size heads width"]:
    """Let each row attend to itself and to all clean tokens of one sequence, the row's own."""
    keys = torch.cat([clean_keys, own.keys], dim=1)
    return _attend(own.queries, keys, torch.cat([clean_values, own.values], dim=1))


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
        self.frozen = FrozenTrunk(trunk)
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

    @property
    def trunk(self) -> Trunk:
        """The network, on the device of this module."""
        return self.frozen.constants

    @in_own_precision
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

    def empty_context(self, batch: int) -> CleanContext:
        """Return the context of sequences that have no clean tokens yet."""
        layers, heads = self.trunk.layers, self.trunk.n_heads
        width = self.trunk.embedding.shape[1] // heads
        none = layers[0].qkv.new_empty(batch, 0, heads, width)
        return CleanContext((none,) * len(layers), (none,) * len(layers))

    @in_own_precision
    def extend(self, context: CleanContext, tokens: Int64[Tensor, "batch size"]) -> CleanContext:
        """Read one more clean block of every sequence: what ``encode`` gives, block by block."""
        trunk, size = self.trunk, self.block_size
        if tokens.shape != (len(context.keys[0]), size):
            raise ValueError(
                f"tokens: expected a block of {size} for each of {len(context.keys[0])} sequences, "
                f"got shape {tuple(tokens.shape)}"
            )
        rotary = trunk.rotary(context.length + torch.arange(size, device=tokens.device))
        x = trunk.embedding[tokens]
        all_keys, all_values = [], []
        last = len(trunk.layers) - 1
        for index, (layer, keys, values) in enumerate(
            zip(trunk.layers, context.keys, context.values, strict=True)
        ):
            own = layer.project(x, rotary)
            all_keys.append(torch.cat([keys, own.keys], dim=1))
            all_values.append(torch.cat([values, own.values], dim=1))
            if index < last:  # beyond is only read by rows
                x = layer.finish(x, _attend(own.queries, all_keys[-1], all_values[-1]))
        return CleanContext(tuple(all_keys), tuple(all_values))

    @in_own_precision
    def log_probs(self, context: CleanContext, rows: NoisyRows) -> Float[Tensor, " needed"]:
        """Return the log-probability of the true token at each needed position, in row order."""
        x = self._predict(context, rows, self._plan(context, rows))
        return token_log_probs(self.trunk.final_norm(x), self.trunk.head, rows.tokens[rows.needed])

    @in_own_precision
    def logits(self, context: CleanContext, rows: NoisyRows) -> Float[Tensor, "needed vocab"]:
        """Return fp32 logits at each needed position, in row order; -inf for the mask token.

        Rows that all stand at the end of the context, as a sampler's do, run as one batch.
        """
        if self.plan_attention is None and (rows.start == context.length).all():
            everyone = torch.arange(len(context.keys[0]), device=rows.sequence.device)
            if not torch.equal(rows.sequence, everyone):
                context = CleanContext(
                    tuple(keys[rows.sequence] for keys in context.keys),
                    tuple(values[rows.sequence] for values in context.values),
                )
            return self.trunk.logits(self._predict(context, rows, _attend_behind))
        return self.trunk.logits(self._predict(context, rows, self._plan(context, rows)))

    def _plan(self, context: CleanContext, rows: NoisyRows) -> Attend:
        plan = self.plan_attention or default_attention(rows.tokens.device)
        return plan(rows, context.length)

    def _predict(
        self, context: CleanContext, rows: NoisyRows, attend: Attend
    ) -> Float[Tensor, "needed dim"]:
        """Run the rows through the network; return its stream at the needed positions."""
        trunk, device = self.trunk, rows.tokens.device
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
        return x
