"""Families of diffusion models that are decoders of transformers with another attention mask.

Each file has the facts of one family and where they are from. ``DECODERS`` lists them.
"""

from tube_lightning.checkpoints.decoders.a2d import A2D_BD3LM, A2D_MDLM
from tube_lightning.checkpoints.decoders.diffusion_of_arms import DIFFUGPT, DIFFULLAMA
from tube_lightning.checkpoints.decoders.dream import DREAM
from tube_lightning.checkpoints.decoders.family import DecoderFamily
from tube_lightning.checkpoints.decoders.fast_dllm import FAST_DLLM_V2
from tube_lightning.checkpoints.decoders.llada import LLADA
from tube_lightning.checkpoints.decoders.llada2 import LLADA2
from tube_lightning.checkpoints.decoders.llada_moe import LLADA_MOE
from tube_lightning.checkpoints.decoders.nemotron import NEMOTRON
from tube_lightning.checkpoints.decoders.open_dllm import OPEN_DLLM
from tube_lightning.checkpoints.decoders.rnd1 import RND1
from tube_lightning.checkpoints.decoders.sdar import SDAR, SDAR_MOE

DECODERS = (
    SDAR,
    SDAR_MOE,
    A2D_BD3LM,
    A2D_MDLM,
    LLADA,
    LLADA_MOE,
    LLADA2,
    DREAM,
    FAST_DLLM_V2,
    NEMOTRON,
    RND1,
    DIFFULLAMA,
    DIFFUGPT,
    OPEN_DLLM,
)

__all__ = ["DECODERS", "DecoderFamily"]
