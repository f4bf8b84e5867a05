"""What a queue's methods are given: checked, and refused with what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isnan
from typing import Any

from ..errors import ConfigurationError
from ._bodies import check_key


def listed_keys(keys: Iterable[str] | str) -> list[str]:
    """Return keys that were given alone or as several, each once. Raises ConfigurationError."""
    try:
        listed = [keys] if isinstance(keys, str) else list(dict.fromkeys(keys))
    except TypeError:
        raise ConfigurationError(f"keys expects the key of a job, or several, got {type(keys).__name__}") from None
    for key in listed:
        check_key(key)
    return listed


def pairs_of(
    bodies: Mapping[str, Mapping[str, Any]] | Iterable[tuple[str | None, Mapping[str, Any]]],
) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """Yield keys and bodies, however they were given. Raises ConfigurationError."""
    expected = "bodies expects a mapping of keys to bodies, or pairs of a key (or None) and a body"
    pairs = bodies.items() if isinstance(bodies, Mapping) else bodies
    if not isinstance(pairs, Iterable):
        raise ConfigurationError(f"{expected}, got {type(bodies).__name__}")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ConfigurationError(f"{expected}, got {type(pair).__name__} in it")
        yield pair[0], pair[1]


def check_settings(lane: object, worker: object) -> None:
    """Raise ConfigurationError for what a worker cannot go by."""
    from ._settings import WorkerSettings

    if worker is not None and not isinstance(worker, WorkerSettings):
        raise ConfigurationError(f"worker expects WorkerSettings(...), got {type(worker).__name__}")
    if lane is not None:
        WorkerSettings(lane=lane)  # type: ignore[arg-type]  # It says what is wrong with it.


def check_seconds(name: str, value: object) -> None:
    """Raise ConfigurationError for what is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or isnan(value):
        raise ConfigurationError(f"{name} expects a number of seconds, got {value!r:.40}")
