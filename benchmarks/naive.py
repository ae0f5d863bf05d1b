"""The forward pass as the original code runs it: the baseline of the benchmark, the tests' oracle.

One call scores one noisy version of whole sequences: the two streams [x_t ; x_0] go through every
layer together, adaLN is evaluated anew, and the full-vocabulary head runs on all 2L tokens.
Written from the description of the format alone; it shares no code with the package.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

StateDict = dict[str, Tensor]


def two_stream_log_probs(
    state: StateDict, tokens: Tensor, masked: Tensor, *, block_size: int, n_heads: int
) -> Tensor:
    """Return log p(true token) at every position, 0 where it is not masked: [batch, length]."""
    length = tokens.shape[1]
    mask_id = state["backbone.vocab_embed.embedding"].shape[0] - 1
    noisy = torch.where(masked, mask_id, tokens)
    positions = torch.arange(length).repeat(2)
    logits = _forward(
        state,
        torch.cat([noisy, tokens], dim=1),
        positions,
        two_stream_mask(length, block_size),
        n_heads,
    )[:, :length]
    return _subs(logits, tokens, masked, mask_id)


def one_stream_log_probs(
    state: StateDict, tokens: Tensor, masked: Tensor, *, n_heads: int
) -> Tensor:
    """Return the same for a full-sequence masked diffusion model."""
    length = tokens.shape[1]
    mask_id = state["backbone.vocab_embed.embedding"].shape[0] - 1
    everything = torch.ones(length, length, dtype=torch.bool)
    noisy = torch.where(masked, mask_id, tokens)
    logits = _forward(state, noisy, torch.arange(length), everything, n_heads)
    return _subs(logits, tokens, masked, mask_id)


def two_stream_mask(length: int, block_size: int) -> Tensor:
    """Say who sees whom: [2 length, 2 length], x_t first and x_0 second."""
    block = torch.arange(length) // block_size
    own = block[:, None] == block[None, :]
    before = block[:, None] > block[None, :]
    return torch.cat(
        [
            torch.cat([own, before], dim=1),
            torch.cat([torch.zeros_like(own), own | before], dim=1),
        ]
    )


def _subs(logits: Tensor, tokens: Tensor, masked: Tensor, mask_id: int) -> Tensor:
    logits[..., mask_id] = -math.inf
    log_probs = logits.log_softmax(dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])[..., 0]
    return torch.where(masked, picked, 0.0)


def _forward(
    state: StateDict, ids: Tensor, positions: Tensor, mask: Tensor, n_heads: int
) -> Tensor:
    x = state["backbone.vocab_embed.embedding"][ids]
    batch, count, dim = x.shape
    width = dim // n_heads
    condition = _condition(state, batch)
    frequency = 1.0 / 10_000 ** (torch.arange(0, width, 2).float() / width)
    angles = torch.cat([torch.outer(positions.float(), frequency)] * 2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    n_blocks = 1 + max(int(k.split(".")[2]) for k in state if k.startswith("backbone.blocks."))
    for index in range(n_blocks):
        p = f"backbone.blocks.{index}."
        modulation = F.linear(
            condition, state[p + "adaLN_modulation.weight"], state[p + "adaLN_modulation.bias"]
        )
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation[:, None].chunk(6, dim=-1)
        h = _norm(x, state[p + "norm1.weight"]) * (1 + scale1) + shift1
        qkv = F.linear(h, state[p + "attn_qkv.weight"]).view(batch, count, 3, n_heads, width)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = (z * cos + _rotate_half(z) * sin for z in (q, k))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        attended = attended.transpose(1, 2).reshape(batch, count, dim)
        x = x + gate1 * F.linear(attended, state[p + "attn_out.weight"])
        h = _norm(x, state[p + "norm2.weight"]) * (1 + scale2) + shift2
        h = F.gelu(
            F.linear(h, state[p + "mlp.0.weight"], state[p + "mlp.0.bias"]), approximate="tanh"
        )
        x = x + gate2 * F.linear(h, state[p + "mlp.2.weight"], state[p + "mlp.2.bias"])
    p = "backbone.output_layer."
    modulation = F.linear(
        condition, state[p + "adaLN_modulation.weight"], state[p + "adaLN_modulation.bias"]
    )
    shift, scale = modulation[:, None].chunk(2, dim=-1)
    x = _norm(x, state[p + "norm_final.weight"]) * (1 + scale) + shift
    return F.linear(x, state[p + "linear.weight"], state[p + "linear.bias"])


def _condition(state: StateDict, batch: int) -> Tensor:
    sigma = torch.zeros(batch)
    frequencies = torch.exp(-math.log(10_000) * torch.arange(128) / 128)
    angles = sigma[:, None] * frequencies
    h = torch.cat([angles.cos(), angles.sin()], dim=-1)
    p = "backbone.sigma_map.mlp."
    h = F.silu(F.linear(h, state[p + "0.weight"], state[p + "0.bias"]))
    return F.silu(F.linear(h, state[p + "2.weight"], state[p + "2.bias"]))


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) * weight


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
