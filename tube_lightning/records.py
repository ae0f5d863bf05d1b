"""Records of tensors: one way to go through them, so that no list of their fields stands twice.

A record is a frozen dataclass, a named tuple, a tuple or a mapping; what it holds are tensors,
records, and anything else, which is left alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from torch import Tensor

T = TypeVar("T")


def map_tensors(function: Callable[..., Tensor], record: T, *others: T) -> T:
    """Return the record with ``function(path, tensor, ...)`` in place of each tensor.

    ``path`` names the tensor by the fields and keys that lead to it. With ``others``, records of
    the same fields, the function gets the tensors of all of them; what is no tensor is the first's.

    >>> map_tensors(lambda path, t: t * len(path), {"a": torch.ones(1), "bc": (torch.ones(1), 7)})
    {'a': tensor([1.]), 'bc': (tensor([4.]), 7)}
    """
    return cast("T", _map_nodes((), function, (record, *others)))


def named_tensors(record: object) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor of a record with its path.

    >>> [path for path, _ in named_tensors({"a": torch.ones(1), "bc": (torch.ones(1), None)})]
    ['a', 'bc.0']
    """
    found: list[tuple[str, Tensor]] = []

    def note(path: str, tensor: Tensor) -> Tensor:
        found.append((path, tensor))
        return tensor

    map_tensors(note, record)
    yield from found


def _map_nodes(
    path: tuple[str, ...], function: Callable[..., Tensor], nodes: tuple[Any, ...]
) -> object:
    def inside(name: object, parts: tuple[Any, ...]) -> object:
        return _map_nodes((*path, str(name)), function, parts)

    node = nodes[0]
    if isinstance(node, Tensor):
        return function(".".join(path), *nodes)
    if isinstance(node, Mapping):
        return {key: inside(key, tuple(other[key] for other in nodes)) for key in node}
    if isinstance(node, tuple):
        names = getattr(node, "_fields", range(len(node)))
        items = [inside(n, p) for n, p in zip(names, zip(*nodes, strict=True), strict=True)]
        kind: Any = type(node)
        return kind(*items) if hasattr(node, "_fields") else kind(items)
    if is_dataclass(node) and not isinstance(node, type):
        names = [field.name for field in fields(node) if field.init]
        parts = {n: inside(n, tuple(getattr(other, n) for other in nodes)) for n in names}
        return replace(node, **parts)
    return node
