"""Dense attention: every token against all keys of its own row."""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor


def attend_densely(
    queries: Float[Tensor, "rows size heads width"],
    keys: Float[Tensor, "rows seen kv_heads width"],
    values: Float[Tensor, "rows seen kv_heads width"],
    sees: Bool[Tensor, "*rows_and_heads #size seen"] | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, "rows size heads width"]:
    """Let each token attend to all keys of its row, or to those that it ``sees``.

    ``causal`` instead leaves each token those up to its own. ``sees`` may have axes for rows and
    heads in front. A head of keys and values serves ``heads // kv_heads`` neighbouring heads of
    queries.
    """
    q, k, v = (rearrange(p, "rows t h w -> rows h t w") for p in (queries, keys, values))
    group = q.shape[1] // k.shape[1]
    if group > 1:  # a copy of the keys: torch's own way may hold all scores instead
        k, v = (p.repeat_interleave(group, dim=1) for p in (k, v))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=sees, is_causal=causal)
    return rearrange(attended, "rows h t w -> rows t h w")
