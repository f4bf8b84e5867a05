"""Remember what was worked out for a JSON schema, by the schema's content."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import orjson

T = TypeVar("T")

_MOST_KEPT = 256
# A longer schema is remembered by its hash, not with all its bytes.
_LONG = 4_096


class ByContent(Generic[T]):
    """The outcomes for the schemas that came last. Threads may share it: two at once may both work one out."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[Hashable, T] = {}

    def of(self, schema: Any, beside: Hashable, make: Callable[[Any], T]) -> T:
        """Return what `make` makes of a schema. `beside`: what else the outcome depends on.

        `make` is given a copy, as the application may go on to change its own; what orjson cannot write (a key that is
        no text, an integer beyond 64 bits, a mapping of another kind) it is given as it is, and each time.
        """
        try:
            text = orjson.dumps(schema)
            key = (text if len(text) <= _LONG else blake2b(text, digest_size=16).digest(), beside)
            found = self._kept.get(key, self)
        except TypeError:
            return make(schema)
        if found is not self:
            return found  # type: ignore[return-value]
        made = self._kept[key] = make(orjson.loads(text))
        if len(self._kept) > _MOST_KEPT:
            for oldest in tuple(self._kept)[: len(self._kept) - _MOST_KEPT]:
                self._kept.pop(oldest, None)
        return made


def written(schema: Any) -> bytes:
    """Return a schema as JSON, the same for all that differ in nothing but the order of their keys.

    Raises TypeError, ValueError or RecursionError for what cannot be written.
    """
    try:
        return orjson.dumps(schema, default=dict, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Whole numbers beyond 64 bits and halves of surrogate pairs are JSON too, and more levels than orjson takes.
        return json.dumps(schema, default=dict, sort_keys=True).encode()
