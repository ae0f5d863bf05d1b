"""Rows, projections and an oracle for shared-prefix attention."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from tube_lightning.networks import NoisyRows
from tube_lightning.networks.trunk import Projections

LAYOUTS = ("dense", "fused", "heads first", "width first")


@dataclass(frozen=True)
class Case:
    """One call of attention: where rows stand, and of what shape they are."""

    starts: tuple[tuple[int, ...], ...]  # of the rows of each sequence, in order
    clean_length: int
    size: int
    kv_heads: int
    group: int
    width: int
    layout: str
    seed: int

    def rows(self):
        counts = torch.tensor([len(some) for some in self.starts])
        sequence = torch.arange(len(self.starts)).repeat_interleave(counts)
        start = torch.tensor([start for some in self.starts for start in some], dtype=torch.int64)
        nothing = torch.zeros(len(start), self.size, dtype=torch.bool)
        return NoisyRows(sequence, start, nothing.long(), nothing, nothing)

    def inputs(self, dtype=torch.float32):
        """Projections of the rows, clean keys and clean values."""
        generator = torch.Generator().manual_seed(self.seed)
        num_rows = sum(map(len, self.starts))

        def draw(rows, tokens, heads):
            return torch.randn(rows, tokens, heads, self.width, generator=generator).to(dtype)

        queries = draw(num_rows, self.size, self.kv_heads * self.group)
        keys, values = (draw(num_rows, self.size, self.kv_heads) for _ in range(2))
        clean = [draw(len(self.starts), self.clean_length, self.kv_heads) for _ in range(2)]
        lay_out = {
            "dense": lambda t: t,
            "fused": lambda t: torch.cat([t, t], dim=2)[:, :, t.shape[2] :],
            "heads first": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
            "width first": lambda t: t.transpose(1, 3).contiguous().transpose(1, 3),
        }[self.layout]
        queries, keys, values, *clean = map(lay_out, (queries, keys, values, *clean))
        return Projections(queries, keys, values), *clean


@st.composite
def cases(draw, max_tokens=150, max_clean=100):
    """Ragged rows of several sequences, some of them without any, prefixes of length 0 too."""
    size = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 17, 70]))
    clean_length = draw(st.integers(1, max_clean))
    counts = draw(st.lists(st.integers(0, max(1, max_tokens // size // 2)), min_size=1, max_size=3))
    if not any(counts):
        counts[-1] = 1
    starts = st.integers(0, clean_length)
    return Case(
        starts=tuple(tuple(sorted(draw(st.lists(starts, min_size=n, max_size=n)))) for n in counts),
        clean_length=clean_length,
        size=size,
        kv_heads=draw(st.integers(1, 2)),
        group=draw(st.sampled_from([1, 1, 2, 3])),
        width=draw(st.sampled_from([1, 8, 12, 16, 24, 64])),
        layout=draw(st.sampled_from(LAYOUTS)),
        seed=draw(st.integers(0, 1000)),
    )


def attend_plainly(case, own, clean_keys, clean_values):
    """The definition, one row and one head at a time, in float64."""
    rows, out = case.rows(), torch.zeros(own.queries.shape, dtype=torch.float64)
    for row, (sequence, start) in enumerate(zip(rows.sequence, rows.start, strict=True)):
        for head in range(own.queries.shape[2]):
            theirs = head // case.group
            keys = torch.cat([clean_keys[sequence, :start, theirs], own.keys[row, :, theirs]])
            values = torch.cat([clean_values[sequence, :start, theirs], own.values[row, :, theirs]])
            scores = own.queries[row, :, head].double() @ keys.double().T / case.width**0.5
            out[row, :, head] = scores.softmax(dim=-1) @ values.double()
    return out
