"""BD3-LM and MDLM as block models: the clean stream once, then only the noisy rows."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.attention import default_attention
from tube_lightning.networks.dit import DiT, DiTConfig
from tube_lightning.networks.head import token_log_probs
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.shared_prefix import Attend, PlanAttention
from tube_lightning.networks.streams import (
    CleanContext,
    attend_behind,
    empty_context,
    read_blocks,
    read_one_more_block,
    run_rows,
)
from tube_lightning.networks.trunk import FrozenTrunk, Trunk, in_own_precision
from tube_lightning.records import map_tensors


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
        return read_blocks(self.trunk, tokens, self.block_size)

    def empty_context(self, batch: int) -> CleanContext:
        """Return the context of sequences that have no clean tokens yet."""
        return empty_context(self.trunk, batch)

    @in_own_precision
    def extend(self, context: CleanContext, tokens: Int64[Tensor, "batch size"]) -> CleanContext:
        """Read one more clean block of every sequence: what ``encode`` gives, block by block."""
        batch, size = len(context.keys[0]), self.block_size
        if tokens.shape != (batch, size):
            raise ValueError(
                f"tokens: expected a block of {size} for each of {batch} sequences, "
                f"got shape {tuple(tokens.shape)}"
            )
        return read_one_more_block(self.trunk, context, tokens)

    @in_own_precision
    def log_probs(self, context: CleanContext, rows: NoisyRows) -> Float[Tensor, " needed"]:
        """Return the log-probability of the true token at each needed position, in row order."""
        x = self._predict(context, rows, self._plan(context, rows))
        true = rows.tokens.flatten()[rows.places]
        return token_log_probs(self.trunk.final_norm(x), self.trunk.head, true)

    @in_own_precision
    def logits(self, context: CleanContext, rows: NoisyRows) -> Float[Tensor, "needed vocab"]:
        """Return fp32 logits at each needed position, in row order; -inf for the mask token.

        Rows that all stand at the end of the context, as a sampler's do, run as one batch.
        """
        if self.plan_attention is None and all(run.start == context.length for run in rows.runs):
            everyone = [(sequence, context.length, 1) for sequence in range(len(context.keys[0]))]
            if list(rows.runs) != everyone:
                context = map_tensors(lambda _, tensor: tensor[rows.sequence], context)
            return self.trunk.logits(self._predict(context, rows, attend_behind))
        return self.trunk.logits(self._predict(context, rows, self._plan(context, rows)))

    def _plan(self, context: CleanContext, rows: NoisyRows) -> Attend:
        plan = self.plan_attention or default_attention(rows.tokens.device)
        return plan(rows, context.length)

    def _predict(
        self, context: CleanContext, rows: NoisyRows, attend: Attend
    ) -> Float[Tensor, "needed dim"]:
        return run_rows(self.trunk, context, rows, attend, self.mask_id)
