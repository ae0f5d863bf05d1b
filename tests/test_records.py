"""Going through records: every tensor once, everything else untouched."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from tube_lightning.records import map_tensors, named_tensors


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor | None


@dataclass(frozen=True)
class Record:
    one: torch.Tensor
    pairs: tuple[Pair, ...]
    by_name: dict[str, torch.Tensor]
    title: str = "kept"


def record(value):
    numbers = torch.full((2,), float(value))
    return Record(
        numbers, (Pair(numbers + 1, None), Pair(numbers + 2, numbers + 3)), {"a": numbers}
    )


PATHS = ["one", "pairs.0.left", "pairs.1.left", "pairs.1.right", "by_name.a"]


def test_every_tensor_has_its_path():
    assert [path for path, _ in named_tensors(record(0))] == PATHS


def test_what_is_no_tensor_is_kept_and_the_record_is_not_changed():
    before = record(1)
    after = map_tensors(lambda _, tensor: tensor * 2, before)
    assert isinstance(after, Record)
    assert isinstance(after.pairs[0], Pair)
    assert after.pairs[0].right is None
    assert after.title == "kept"
    assert [t.tolist() for _, t in named_tensors(after)] == [
        [2 * x for x in t.tolist()] for _, t in named_tensors(before)
    ]
    assert before.one.tolist() == [1, 1]


def test_records_are_joined_tensor_by_tensor():
    joined = map_tensors(lambda _, *tensors: torch.cat(tensors), record(1), record(5))
    assert joined.one.tolist() == [1, 1, 5, 5]
    assert joined.pairs[1].right.tolist() == [4, 4, 8, 8]
    assert joined.by_name["a"].tolist() == [1, 1, 5, 5]


def test_records_of_other_shapes_are_not_joined():
    other = Record(torch.ones(2), (), {"a": torch.ones(2)})
    with pytest.raises(ValueError, match="zip"):
        map_tensors(lambda _, *tensors: torch.cat(tensors), record(1), other)
