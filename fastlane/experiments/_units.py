"""What is drawn for an arm: whoever or whatever the application names, or each call by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import MappingProxyType, TracebackType
from typing import Any, Self

from ..compat.context import restore
from ..errors import ConfigurationError

UnitOf = str | Callable[[Mapping[str, Any]], str | None] | None
"""Where the id of a call's unit stands: the name of a field of its body ("user", "metadata.tenant"), or a function of
the body."""

_current: ContextVar[str | None] = ContextVar("fastlane_experiment_unit", default=None)


class unit:  # noqa: N801 - used as a statement: `with fastlane.experiments.unit("user-42"):`
    """Say of which unit the calls inside are: `with unit("user-42"):`.

    Calls of one unit go to one arm, in every process and for ever. The id itself stays in this process's memory: what
    is kept, logged and exported is a keyed hash. Inside another one, the inner one counts. Tasks that are started
    inside are inside; a plain thread starts outside, unless it is run in a copy of the context. Raises
    ConfigurationError for what is no text.
    """

    __slots__ = ("_id", "_tokens")

    def __init__(self, id: str) -> None:
        if not isinstance(id, str) or not id:
            # Its type is named, never its text.
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


def checked(of: UnitOf) -> Callable[[Mapping[str, Any]], Any] | None:
    """What reads a unit's id out of a body. Raises ConfigurationError."""
    if of is None or (callable(of) and not isinstance(of, type)):
        return of
    if not isinstance(of, str) or not of or not all(of.split(".")):
        raise ConfigurationError(
            'unit takes the name of a field of the body such as "user", "safety_identifier" or "metadata.tenant", or a '
            f"function of the body that returns a text, got {of!r:.60}"
        )
    names = tuple(of.split("."))

    def read(body: Mapping[str, Any]) -> Any:
        value: Any = body
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    return read


def unit_id(of: Callable[[Mapping[str, Any]], Any] | None, options: Any) -> str | None:
    """The id of the unit that a call is of; None where nothing says so: then each call is a unit of its own.

    Raises what the application's own function raises.
    """
    current = _current.get()
    if current is not None or of is None:
        return current
    body = options.json_data
    if not isinstance(body, Mapping):
        return None
    extra = options.extra_json
    found = of(MappingProxyType({**body, **extra} if isinstance(extra, Mapping) and extra else body))
    return found if isinstance(found, str) and found else None
