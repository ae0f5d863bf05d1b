"""BD3-LM and MDLM as block models: the clean stream once, then only the noisy rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.attention import Attend, PlanAttention, default_attention
from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.dit import DiT, DiTConfig
from tube_lightning.networks.head import token_log_probs
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.trunk import FrozenTrunk, Projections, Trunk, in_own_precision
from tube_lightning.records import map_tensors


@dataclass(frozen=True)
class CleanContext:
    """Keys and values of the clean tokens that rows may condition on, for each layer."""

    keys: tuple[Float[Tensor, "batch clean heads width"], ...]
    values: tuple[Float[Tensor, "batch clean heads width"], ...]

    @property
    def length(self) -> int:
        """Number of clean tokens of each sequence."""
        return self.keys[0].shape[1]


KeysAndValues = tuple[Tensor, Tensor]
"""What the tokens of one layer may attend to, both [batch, seen, heads, width]."""


def _attend_behind(
    own: Projections,
    clean_keys: Float[Tensor, "rows clean heads width"],
    clean_values: Float[Tensor, "rows clean heads width"],
) -> Float[Tensor, "rows size heads width"]:
    """Let each row attend to itself and to all clean tokens of one sequence, the row's own."""
    return attend_densely(own.queries, *_append_own(own, clean_keys, clean_values))


def _append_own(
    own: Projections,
    clean_keys: Float[Tensor, "rows clean heads width"],
    clean_values: Float[Tensor, "rows clean heads width"],
) -> KeysAndValues:
    """Put a row's own keys and values behind the clean ones."""
    keys = torch.cat([clean_keys, own.keys], dim=1)
    return keys, torch.cat([clean_values, own.values], dim=1)


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
        return cls(network.config, network.eval().fold().freeze(dtype))

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
    def device(self) -> torch.device:
        """Where the network is, and expects tokens and rows."""
        return self.trunk.embedding.device

    @property
    def trunk(self) -> Trunk:
        """The network, on the device of this module."""
        return self.frozen.constants

    @in_own_precision
    def encode(self, tokens: Int64[Tensor, "batch length"]) -> CleanContext:
        """Run the clean stream, block-causally, over all blocks that some row has before it."""
        num_blocks_before = -(-tokens.shape[1] // self.block_size) - 1
        if num_blocks_before < 1:
            return self.empty_context(len(tokens))
        tokens = tokens[:, : num_blocks_before * self.block_size]
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        block = positions // self.block_size
        return self._read_clean(
            tokens, positions, lambda _, own: (own.keys, own.values), block[:, None] >= block
        )

    def empty_context(self, batch: int) -> CleanContext:
        """Return the context of sequences that have no clean tokens yet."""
        layers, heads = self.trunk.layers, self.trunk.n_heads
        width = self.trunk.embedding.shape[1] // heads
        none = layers[0].qkv.new_empty(batch, 0, heads, width)
        return CleanContext((none,) * len(layers), (none,) * len(layers))

    @in_own_precision
    def extend(self, context: CleanContext, tokens: Int64[Tensor, "batch size"]) -> CleanContext:
        """Read one more clean block of every sequence: what ``encode`` gives, block by block."""
        batch, size = len(context.keys[0]), self.block_size
        if tokens.shape != (batch, size):
            raise ValueError(
                f"tokens: expected a block of {size} for each of {batch} sequences, "
                f"got shape {tuple(tokens.shape)}"
            )
        return self._read_clean(
            tokens,
            context.length + torch.arange(size, device=tokens.device),
            lambda number, own: _append_own(own, context.keys[number], context.values[number]),
        )

    def _read_clean(
        self,
        tokens: Int64[Tensor, "batch length"],
        positions: Int64[Tensor, " length"],
        collect: Callable[[int, Projections], KeysAndValues],
        sees: Bool[Tensor, "length length"] | None = None,
    ) -> CleanContext:
        """Run clean tokens, each attending to what ``collect`` returns for its layer; keep that."""
        layers: list[KeysAndValues] = []
        num_layers = len(self.trunk.layers)

        def attend(number: int, own: Projections) -> Tensor | None:
            layers.append(collect(number, own))
            if number == num_layers - 1:  # what follows is read by nobody
                return None
            return attend_densely(own.queries, *layers[-1], sees)

        self.trunk.run(tokens, positions, attend)
        keys, values = zip(*layers, strict=True)
        return CleanContext(keys, values)

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
                context = map_tensors(lambda _, tensor: tensor[rows.sequence], context)
            return self.trunk.logits(self._predict(context, rows, _attend_behind))
        return self.trunk.logits(self._predict(context, rows, self._plan(context, rows)))

    def _plan(self, context: CleanContext, rows: NoisyRows) -> Attend:
        plan = self.plan_attention or default_attention(rows.tokens.device)
        return plan(rows, context.length)

    def _predict(
        self, context: CleanContext, rows: NoisyRows, attend: Attend
    ) -> Float[Tensor, "needed dim"]:
        """Run the rows through the network; return its stream at the needed positions."""
        places = torch.arange(self.block_size, device=rows.tokens.device)
        return self.trunk.run(
            rows.tokens.where(rows.revealed, self.mask_id),
            rows.start[:, None] + places,
            lambda number, own: attend(own, context.keys[number], context.values[number]),
            rows.needed,
        )
