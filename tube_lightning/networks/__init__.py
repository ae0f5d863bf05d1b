"""Networks, and the little that the rest of the package sees of them."""

from tube_lightning.networks.arm import DiTARM, TransformersARM
from tube_lightning.networks.attention import default_attention, plan_kernel
from tube_lightning.networks.block_diffusion import BlockDiffusion
from tube_lightning.networks.blocks import goes_first, num_unpredicted, size_of_blocks
from tube_lightning.networks.decoder import DecoderBlockModel
from tube_lightning.networks.decoder_arm import DecoderARM
from tube_lightning.networks.decoder_check import check_decoder
from tube_lightning.networks.decoder_facts import Context, DecoderFacts, First
from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.dit import MLP_RATIO, DiT, DiTConfig
from tube_lightning.networks.fingerprint import model_identity
from tube_lightning.networks.grouped_attention import plan_grouped
from tube_lightning.networks.head import HELD_LOGITS
from tube_lightning.networks.planned_rows import PlannedRows
from tube_lightning.networks.products import linear
from tube_lightning.networks.protocols import (
    AutoregressiveModel,
    BlockModel,
    NoisyRows,
    SamplingModel,
)
from tube_lightning.networks.shared_prefix import PlanAttention
from tube_lightning.networks.streams import read_blocks, run_rows
from tube_lightning.networks.tokens import check_tokens, check_vocabularies
from tube_lightning.networks.trunk import ROTARY_BASE, Layer, Trunk

__all__ = [
    "HELD_LOGITS",
    "MLP_RATIO",
    "ROTARY_BASE",
    "AutoregressiveModel",
    "BlockDiffusion",
    "BlockModel",
    "Context",
    "DecoderARM",
    "DecoderBlockModel",
    "DecoderFacts",
    "DiT",
    "DiTARM",
    "DiTConfig",
    "First",
    "Layer",
    "NoisyRows",
    "PlanAttention",
    "PlannedRows",
    "SamplingModel",
    "TransformersARM",
    "Trunk",
    "attend_densely",
    "check_decoder",
    "check_tokens",
    "check_vocabularies",
    "default_attention",
    "goes_first",
    "linear",
    "model_identity",
    "num_unpredicted",
    "plan_grouped",
    "plan_kernel",
    "read_blocks",
    "run_rows",
    "size_of_blocks",
]
