"""The two streams of block diffusion: clean tokens once, then noisy rows behind them.

Differentiable, so that training runs what evaluation runs. A full-sequence masked diffusion model
is the case of one block: its context is empty.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.shared_prefix import Attend
from tube_lightning.networks.trunk import Projections, Trunk


@dataclass(frozen=True)
class CleanContext:
    """Keys and values of the clean tokens that rows may condition on, for each layer."""

    keys: tuple[Float[Tensor, "batch clean kv_heads width"], ...]
    values: tuple[Float[Tensor, "batch clean kv_heads width"], ...]

    @property
    def length(self) -> int:
        """Number of clean tokens of each sequence."""
        return self.keys[0].shape[1]


KeysAndValues = tuple[Tensor, Tensor]
"""What the tokens of one layer may attend to, both [batch, seen, heads, width]."""


def empty_context(trunk: Trunk, batch: int) -> CleanContext:
    """Return the context of sequences that have no clean tokens yet."""
    layers, heads = trunk.layers, trunk.n_heads
    width = trunk.embedding.shape[1] // heads
    none = layers[0].qkv.new_empty(batch, 0, heads, width)
    return CleanContext((none,) * len(layers), (none,) * len(layers))


def read_blocks(
    trunk: Trunk, tokens: Int64[Tensor, "batch length"], block_size: int
) -> CleanContext:
    """Run the clean stream, block-causally, over all blocks that some row has before it."""
    num_blocks_before = -(-tokens.shape[1] // block_size) - 1
    if num_blocks_before < 1:
        return empty_context(trunk, len(tokens))
    tokens = tokens[:, : num_blocks_before * block_size]
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    block = positions // block_size
    sees = block[:, None] >= block

    def keep(_: int, own: Projections) -> KeysAndValues:
        return own.keys, own.values.contiguous()  # a view would keep the queries in memory as well

    return _read_clean(trunk, tokens, positions, keep, sees)


def read_one_more_block(
    trunk: Trunk, context: CleanContext, tokens: Int64[Tensor, "batch size"]
) -> CleanContext:
    """Read one more clean block of every sequence: `read_blocks`, block by block."""
    return _read_clean(
        trunk,
        tokens,
        context.length + torch.arange(tokens.shape[1], device=tokens.device),
        lambda number, own: _append_own(own, context.keys[number], context.values[number]),
    )


def run_rows(
    trunk: Trunk, context: CleanContext, rows: NoisyRows, attend: Attend, mask_id: int
) -> Float[Tensor, "needed dim"]:
    """Run rows behind their clean tokens; return the stream at the needed positions."""
    offsets = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)
    return trunk.run(
        rows.tokens.where(rows.revealed, mask_id),
        rows.start[:, None] + offsets,
        lambda number, own: attend(own, context.keys[number], context.values[number]),
        rows.places,
    )


def attend_behind(
    own: Projections,
    clean_keys: Float[Tensor, "rows clean kv_heads width"],
    clean_values: Float[Tensor, "rows clean kv_heads width"],
) -> Float[Tensor, "rows size heads width"]:
    """Let each row attend to itself and to all clean tokens of one sequence, the row's own."""
    return attend_densely(own.queries, *_append_own(own, clean_keys, clean_values))


def _append_own(
    own: Projections,
    clean_keys: Float[Tensor, "rows clean kv_heads width"],
    clean_values: Float[Tensor, "rows clean kv_heads width"],
) -> KeysAndValues:
    """Put a row's own keys and values behind the clean ones."""
    keys = torch.cat([clean_keys, own.keys], dim=1)
    return keys, torch.cat([clean_values, own.values], dim=1)


def _read_clean(
    trunk: Trunk,
    tokens: Int64[Tensor, "batch length"],
    positions: Int64[Tensor, " length"],
    collect: Callable[[int, Projections], KeysAndValues],
    sees: Bool[Tensor, "length length"] | None = None,
) -> CleanContext:
    """Run clean tokens, each attending to what ``collect`` returns for its layer; keep that."""
    layers: list[KeysAndValues] = []
    num_layers = len(trunk.layers)

    def attend(number: int, own: Projections) -> Tensor | None:
        layers.append(collect(number, own))
        if number == num_layers - 1:  # what follows is read by nobody
            return None
        return attend_densely(own.queries, *layers[-1], sees)

    trunk.run(tokens, positions, attend)
    keys, values = zip(*layers, strict=True)
    return CleanContext(keys, values)
