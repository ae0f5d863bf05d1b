"""Rows that the host plans: cut into micro-batches, with what it knows of each."""

from dataclasses import replace

import pytest
import torch

from tests.networks import random_tokens
from tube_lightning.networks import PlannedRows


@pytest.fixture
def plan():
    """The blocks 4 to 11 of sequences of four, some with several rows."""
    generator = torch.Generator().manual_seed(0)
    block = torch.arange(4, 12).repeat_interleave(torch.tensor([1, 3, 1, 1, 4, 2, 1, 2]))
    revealed = torch.rand(len(block), 4, generator=generator) < 0.5
    needed = ~revealed & (torch.rand(len(block), 4, generator=generator) < 0.7)
    return PlannedRows(block, revealed, needed, num_blocks=4)


@pytest.mark.parametrize("num_rows", [None, 1, 2, 4, 15, 100])
def test_the_host_knows_what_the_device_would_answer(plan, num_rows):
    tokens = random_tokens(12, 4)
    pieces = list(plan.micro_batches(tokens, num_rows, first_sequence=1))
    assert len(pieces) == (1 if num_rows is None else -(-15 // num_rows))
    for rows in pieces:
        asked = replace(rows)
        assert torch.equal(rows.places, asked.places)
        assert rows.runs == asked.runs
        assert torch.equal(rows.tokens, tokens[(rows.sequence + 1) * 4 + rows.start // 4])
    for name in ("revealed", "needed"):
        whole = torch.cat([getattr(rows, name) for rows in pieces])
        assert torch.equal(whole, getattr(plan, name))


def test_needed_positions_are_numbered_through_all_rows(plan):
    assert torch.equal(plan.places, plan.needed.flatten().nonzero()[:, 0])
    (rows,) = plan.micro_batches(random_tokens(12, 4))
    assert [run.sequence for run in rows.runs] == [1] * 4 + [2] * 4
    assert [run.start for run in rows.runs] == [0, 4, 8, 12] * 2
    assert [run.num_rows for run in rows.runs] == [1, 3, 1, 1, 4, 2, 1, 2]
