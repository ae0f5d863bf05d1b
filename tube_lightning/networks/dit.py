"""The network of BD3-LM, MDLM and their AR baseline: one transformer with options.

Parameters carry the published names, so a checkpoint's state dict is this module's. All supported
models zero the noise level (no time conditioning), so the adaLN shift, scale and gate are
constants: ``DiT.fold`` multiplies them into the norms and output projections, and what remains
is a plain pre-norm transformer of ``Layer`` records. Training folds anew at every step (the
constants are learned); inference folds once.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tube_lightning.networks.trunk import Layer, Trunk

MLP_RATIO = 4
FREQUENCY_DIM = 256


@dataclass(frozen=True)
class DiTConfig:
    """Sizes and variant of the network, with the names of the published ``config.json``.

    Block diffusion: ``cross_attn``. Masked diffusion (MDLM): neither flag. AR: ``causal``, and no
    ``adaln``. The mask token is the last of the vocabulary, unless the tokenizer brought its own;
    a negative ``mask_id`` counts from the end.
    """

    vocab_size: int
    model_length: int
    block_size: int
    hidden_dim: int = 768
    cond_dim: int = 128
    n_blocks: int = 12
    n_heads: int = 12
    dropout: float = 0.1
    adaln: bool = True
    cross_attn: bool = True
    causal: bool = False
    mask_id: int = -1

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        for name in ("vocab_size", "model_length", "block_size", "hidden_dim", "n_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.hidden_dim % self.n_heads or (self.hidden_dim // self.n_heads) % 2:
            raise ValueError(
                f"n_heads: expected to cut hidden_dim={self.hidden_dim} into heads of even width, "
                f"got {self.n_heads}"
            )
        if self.causal and self.cross_attn:
            raise ValueError("causal, cross_attn: expected at most one of the two, got both")
        if not -self.vocab_size <= self.mask_id < self.vocab_size:
            raise ValueError(
                f"mask_id: expected one of the {self.vocab_size} tokens, got {self.mask_id}"
            )
        object.__setattr__(self, "mask_id", self.mask_id % self.vocab_size)


def _split_mlp(mlp: nn.Sequential) -> tuple[nn.Linear, nn.Linear]:
    """Return the two linear maps around an activation."""
    first, _, last = cast("tuple[nn.Linear, nn.Module, nn.Linear]", tuple(mlp))
    return first, last


class _NoiseLevel(nn.Module):
    """The embedding of a noise level; only level zero is ever asked for."""

    def __init__(self, cond_dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(FREQUENCY_DIM, cond_dim), nn.SiLU(), nn.Linear(cond_dim, cond_dim)
        )

    def at_zero(self) -> Float[Tensor, " cond"]:
        """Embed level zero: all cosines are one, all sines zero."""
        weight = _split_mlp(self.mlp)[0].weight
        half = torch.ones(FREQUENCY_DIM // 2, device=weight.device, dtype=weight.dtype)
        return F.silu(self.mlp(torch.cat([half, torch.zeros_like(half)])))


class _Norm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))


class _Embedding(nn.Module):
    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, dim))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))


def _make_modulation(cond_dim: int, width: int) -> nn.Linear:
    """Make a modulation that starts at zero: no shift, no scale, closed gates."""
    linear = nn.Linear(cond_dim, width)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class _Block(nn.Module):
    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.norm1 = _Norm(dim)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = _Norm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, MLP_RATIO * dim),
            nn.GELU(approximate="tanh"),
            nn.Linear(MLP_RATIO * dim, dim),
        )
        if config.adaln:
            self.adaLN_modulation = _make_modulation(config.cond_dim, 6 * dim)

    def fold(self, condition: Tensor | None, n_heads: int, dropout: float) -> Layer:
        """Multiply the modulation (eq. adaLN of DiT, Peebles and Xie 2023) into the weights."""
        zero = torch.zeros_like(self.norm1.weight)
        parts = [zero, zero, zero + 1, zero, zero, zero + 1]
        if condition is not None:
            parts = list(self.adaLN_modulation(condition).chunk(6))
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        mlp_in, mlp_out = _split_mlp(self.mlp)
        return Layer(
            norm1=(self.norm1.weight * (1 + scale1), shift1),
            qkv=self.attn_qkv.weight,
            out=gate1[:, None] * self.attn_out.weight,
            norm2=(self.norm2.weight * (1 + scale2), shift2),
            mlp_in=(mlp_in.weight, mlp_in.bias),
            mlp_out=(gate2[:, None] * mlp_out.weight, gate2 * mlp_out.bias),
            n_heads=n_heads,
            dropout=dropout,
        )


class _OutputLayer(nn.Module):
    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.norm_final = _Norm(dim)
        self.linear = nn.Linear(dim, config.vocab_size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        if config.adaln:
            self.adaLN_modulation = _make_modulation(config.cond_dim, 2 * dim)


class DiT(nn.Module):
    """The parameters of the network, under their published names (``backbone.*``)."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab_embed = _Embedding(config.vocab_size, config.hidden_dim)
        if config.adaln:
            self.sigma_map = _NoiseLevel(config.cond_dim)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.n_blocks))
        self.output_layer = _OutputLayer(config)

    def fold(self) -> Trunk:
        """Fold the constant modulation into a trunk; differentiable."""
        config, condition = self.config, None
        weight = self.output_layer.norm_final.weight
        shift = torch.zeros_like(weight)
        if config.adaln:
            condition = self.sigma_map.at_zero()
            shift, scale = self.output_layer.adaLN_modulation(condition).chunk(2)
            weight = weight * (1 + scale)
        mask = torch.arange(config.vocab_size, device=weight.device) == config.mask_id
        bias = self.output_layer.linear.bias.masked_fill(mask, -math.inf)
        dropout = config.dropout if self.training else 0.0
        return Trunk(
            embedding=self.vocab_embed.embedding,
            layers=tuple(
                block.fold(condition, config.n_heads, dropout)
                for block in self.blocks
                if isinstance(block, _Block)
            ),
            norm_final=(weight, shift),
            head=(self.output_layer.linear.weight, bias),
            n_heads=config.n_heads,
        )
