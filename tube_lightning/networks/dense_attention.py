"""Dense attention: every token against all keys of its own row."""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor


def attend_densely(
    queries: Float[Tensor, "rows size heads width"],
    keys: Float[Tensor, "rows seen key_heads width"],
    values: Float[Tensor, "rows seen key_heads width"],
    sees: Bool[Tensor, "*rows_and_heads #size seen"] | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, "rows size heads width"]:
    """Let each token attend to all keys of its row, or to those that it ``sees``.

    ``causal`` instead leaves each token those up to its own. ``sees`` may have axes for rows and
    heads in front. Several heads of queries may share one of keys.
    """
    q, k, v = (rearrange(p, "rows t h w -> rows h t w") for p in (queries, keys, values))
    shared = keys.shape[2] != queries.shape[2]
    attended = F.scaled_dot_product_attention(
        q, k, v, attn_mask=sees, is_causal=causal, enable_gqa=shared
    )
    return rearrange(attended, "rows h t w -> rows t h w")
