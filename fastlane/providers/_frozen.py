"""A mapping that cannot be changed, and can be hashed, compared and pickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

V_co = TypeVar("V_co", covariant=True)


class FrozenMapping(Mapping[str, V_co]):
    """What a `dict` holds, for good: facts are shared by all clients of a process."""

    __slots__ = ("_items",)
    _items: dict[str, Any]

    def __init__(self, items: Mapping[str, V_co]) -> None:
        object.__setattr__(self, "_items", dict(items))

    def __getitem__(self, key: str) -> V_co:
        found: V_co = self._items[key]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: make another one")

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return type(self), (self._items,)
