"""Shared-prefix attention: each row sees itself and the clean tokens before its block.

One interface, several implementations. A planner looks at the rows once and returns the function
that every layer calls, so that what depends on the rows alone is not repeated in each layer.
"""

from collections.abc import Callable

from torch import Tensor

from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.trunk import Projections

Attend = Callable[[Projections, Tensor, Tensor], Tensor]
"""(projections of the rows, clean keys, clean values) -> what each row's tokens attended to.

Rows are [rows, size, heads, width]; clean keys and values [batch, clean, kv_heads, width]. A head
of keys and values, the rows' own too, serves ``heads // kv_heads`` neighbouring heads of queries.
"""
PlanAttention = Callable[[NoisyRows, int], Attend]
"""(rows, number of clean tokens in a sequence) -> the function that every layer calls."""
