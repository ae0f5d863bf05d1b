"""The Triton kernel of shared-prefix attention: imported only where it is launched.

One program is one tile of queries of one sequence and one head. It goes over the keys of the tile's
own rows, then over the clean keys in place, with an online softmax in base 2. Numbers are proven in
Triton's interpreter, compilation by ``python -m benchmarks.kernels``.
"""

from typing import no_type_check

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.0e38)
"""Where maxima begin: finite, so that a query that has seen no key yet makes no NaN."""


@triton.jit(do_not_specialize=["size", "group"])  # what is compiled does not depend on them
@no_type_check
def attend_to_prefix(
    queries,
    keys,
    values,
    clean_keys,
    clean_values,
    attended,
    tile_first,
    tile_last,
    sequence,
    start,
    scale,
    size,
    width,
    group,
    query_row,
    query_token,
    query_head,
    key_row,
    key_token,
    key_head,
    value_row,
    value_token,
    value_head,
    clean_key_sequence,
    clean_key_token,
    clean_key_head,
    clean_value_sequence,
    clean_value_token,
    clean_value_head,
    out_token,
    out_head,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend with the queries of rows ``tile_first`` to ``tile_last``, or a part of a long row.

    Tokens are counted through all rows, ``size`` in each. Every ``_row``, ``_token``, ``_head`` and
    ``_sequence`` is a stride; widths are padded to WIDTH.
    """
    tile, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // group
    first_row, last_row = tl.load(tile_first + tile), tl.load(tile_last + tile)
    own_end = last_row * size
    column = tl.arange(0, WIDTH)[None, :]
    inside = column < width

    token = first_row * size + part * QUERIES + tl.arange(0, QUERIES)
    there = token < own_end
    row = token // size
    before = tl.load(start + row, mask=there, other=0)
    q = _load_tokens(
        queries + head * query_head, token, there, size, query_row, query_token, column, inside
    )

    top = tl.full([QUERIES], LOWEST, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, WIDTH], tl.float32)
    for at in range(first_row * size, own_end, KEYS):
        key = at + tl.arange(0, KEYS)
        here = key < own_end
        k = _load_tokens(
            keys + kv_head * key_head, key, here, size, key_row, key_token, column, inside
        )
        v = _load_tokens(
            values + kv_head * value_head, key, here, size, value_row, value_token, column, inside
        )
        sees = (row[:, None] == (key // size)[None, :]) & here[None, :]
        top, total, mixed = _absorb(q, k, v, sees, scale, top, total, mixed, PRECISION)

    place = tl.load(sequence + first_row, mask=first_row < last_row, other=0).to(tl.int64)
    clean_keys += place * clean_key_sequence + kv_head * clean_key_head
    clean_values += place * clean_value_sequence + kv_head * clean_value_head
    longest = tl.max(before, 0)
    key_offset = tl.arange(0, KEYS)[:, None] * clean_key_token + column
    value_offset = tl.arange(0, KEYS)[:, None] * clean_value_token + column
    for at in range(0, longest, KEYS):
        key = at + tl.arange(0, KEYS)
        seen = (key < longest)[:, None] & inside
        k = tl.load(clean_keys + key_offset, mask=seen, other=0.0)
        v = tl.load(clean_values + value_offset, mask=seen, other=0.0)
        clean_keys += KEYS * clean_key_token
        clean_values += KEYS * clean_value_token
        sees = key[None, :] < before[:, None]
        top, total, mixed = _absorb(q, k, v, sees, scale, top, total, mixed, PRECISION)

    mixed = mixed / tl.where(there, total, 1.0)[:, None]
    out = attended + head * out_head + token.to(tl.int64)[:, None] * out_token + column
    tl.store(out, mixed.to(attended.dtype.element_ty), mask=there[:, None] & inside)


@triton.jit
@no_type_check
def _load_tokens(base, token, there, size, row_stride, token_stride, column, inside):
    """Load one head of some tokens, with zeros where there is none."""
    row = (token // size).to(tl.int64)
    where = base + (row * row_stride + token % size * token_stride)[:, None] + column
    return tl.load(where, mask=there[:, None] & inside, other=0.0)


@triton.jit
@no_type_check
def _absorb(q, k, v, sees, scale, top, total, mixed, PRECISION: tl.constexpr):
    """Take some more keys into the running softmax, those that each query sees."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(sees, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    shrink = tl.exp2(top - higher)
    weights = tl.exp2(scores - higher[:, None])
    total = total * shrink + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(v.dtype), v, mixed * shrink[:, None], input_precision=PRECISION)
    return higher, total, mixed
