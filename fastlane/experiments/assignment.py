"""Assign units to arms by a keyed hash: the same arm in every process, on every machine, after every restart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from random import Random
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from .._fork import in_child
from ..compat.context import restore
from ..errors import ConfigurationError

UnitOf: TypeAlias = Callable[[Mapping[str, Any]], str | None] | None
"""Reads the id of a call's unit from its body."""

_POINTS = float(2**53)
_current: ContextVar[str | None] = ContextVar("fastlane_experiment_unit", default=None)
_random = Random()
# A forked child must not draw the same numbers as its parent.
in_child(_random.seed)


class unit:  # noqa: N801 - used as a statement: `with fastlane.experiments.unit("user-42"):`
    """Name the unit of the calls inside: `with unit("user-42"):`.

    All calls of a unit go to one arm, in every process. The id stays in this process's memory: stores, logs and exports
    hold a keyed hash. The innermost `unit` counts. Tasks that are started inside inherit it, plain threads do not.
    Raises ConfigurationError for anything but a text that is not empty.
    """

    __slots__ = ("_id", "_tokens")

    def __init__(self, id: str) -> None:
        if not isinstance(id, str) or not id:
            # The error names the type, never the text.
            got = "an empty text" if id == "" else f"a {type(id).__name__}"
            raise ConfigurationError(f'unit() takes an id such as "user-42", got {got}')
        self._id = id
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self._id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restore(_current, self._tokens.pop())


class Draw(NamedTuple):
    """The hash of one unit."""

    point: float
    """In [0, 1), uniform over units. It decides the arm."""
    unit_id_hash: str
    """Independent of `point`. It decides the bucket in which the unit's calls are counted."""


def hash_key(name: str, salt: str | None) -> bytes:
    """Return the key of an experiment's hashes. Hashes of two experiments cannot be linked."""
    return hashlib.blake2b(f"{salt or ''}\0{name}".encode("utf-8", "surrogatepass"), digest_size=32).digest()


def draw(key: bytes, unit_id: str | None) -> Draw:
    """Hash the id of a unit. None: the call is a unit of its own, drawn at random."""
    if unit_id is None:
        return Draw(_random.random(), f"{_random.getrandbits(64):016x}")
    # Keyed BLAKE2b (RFC 7693) is a pseudo-random function: without the key, the hash reveals nothing.
    digest = hashlib.blake2b(unit_id.encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest()
    return Draw((int.from_bytes(digest[:8], "big") >> 11) / _POINTS, digest[8:].hex())


def arm_at(point: float, shares: Mapping[str, float], reference: str) -> str:
    """Return the arm of a unit. Arms follow one another from 0; the reference has the rest."""
    for arm, share in shares.items():
        if point < share:
            return arm
        point -= share
    return reference


def unit_id(of: UnitOf, options: Any) -> str | None:
    """Return the id of a call's unit, or None where nothing names one. Raises what the user's function raises."""
    current = _current.get()
    if current is not None or of is None or not isinstance(options.json_data, Mapping):
        return current
    extra = options.extra_json if isinstance(options.extra_json, Mapping) else {}
    found = of(MappingProxyType({**options.json_data, **extra}))
    return found if isinstance(found, str) and found else None
