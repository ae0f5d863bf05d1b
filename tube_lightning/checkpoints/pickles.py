"""Read a pickle without executing anything from it.

A pickle is a program that may name any callable of the machine and call it. Here no name is ever
looked up: each becomes an inert class that writes down what the program wanted of it.
"""

import pickle
from io import BytesIO
from typing import Any, ClassVar


class StandIn:
    """What a pickle wanted of some global: written down, never done.

    It takes every operation of the pickle machine: calls, instances, states, items, elements.
    """

    __slots__ = ("args", "elements", "items", "state")
    path: ClassVar[str] = "the result of a call"
    args: tuple[Any, ...]
    state: Any
    items: dict[Any, Any]
    elements: list[Any]

    def __new__(cls, *args: object, **_: object) -> "StandIn":
        """Record the arguments; pickles make instances both with a call and without."""
        self = super().__new__(cls)
        self.args, self.state = args, None
        self.items, self.elements = {}, []
        return self

    def __repr__(self) -> str:
        """Name what was not looked up."""
        return f"<stand-in for {self.path}>"

    def __call__(self, *args: object) -> "StandIn":
        """Stand in for the result as well: pickles call what other calls returned."""
        return StandIn(self, *args)

    def __setstate__(self, state: object) -> None:
        """Keep the state aside: without this method it would become attributes."""
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        """Record an item of something like a dict."""
        self.items[key] = value

    def append(self, element: object) -> None:
        """Record an element of something like a list."""
        self.elements.append(element)

    add = append


class _InertUnpickler(pickle.Unpickler):
    """An unpickler to which the machine has no globals at all."""

    def find_class(self, module: str, name: str) -> type[StandIn]:
        return type("StandIn", (StandIn,), {"__slots__": (), "path": f"{module}.{name}"})

    def persistent_load(self, pid: object) -> object:
        return pid  # a reference to something outside the pickle, for the caller to follow


def read_pickle(data: bytes) -> object:
    """Return what a pickle describes, with a ``StandIn`` for each object of any class.

    Only the types that have operations of their own in the pickle language are real: None, numbers,
    strings, bytes, tuples, lists, dicts and sets. References to outside (``persistent_id``) stay
    as they are.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"a": 1, "b": slice(2)}))
    {'a': 1, 'b': <stand-in for builtins.slice>}
    """
    try:
        return _InertUnpickler(BytesIO(data)).load()
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(f"corrupt pickle ({type(error).__name__}: {error})") from error
