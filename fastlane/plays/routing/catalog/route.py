"""`Route`: what stands in the place of a model's name where the model is to be chosen for the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NoReturn, Self, get_args
from urllib.parse import parse_qsl, quote

from fastlane.errors import ConfigurationError
from fastlane.plays.routing.requests import ALLOWED

AUTO = "fastlane/auto"

Urgency = Literal["interactive", "background", "offline"]

# For what somebody waits for, the slow ones count: of 20 answers, 19 are to be there.
_QUANTILES = {"interactive": 0.95}


class Route(str):  # noqa: SLOT000 - slots could be set again
    """The name of a model that is yet to be chosen, with what it has to be good for.

    It is a text ("fastlane/auto?min_quality=45&task=triage"), and passes wherever the name of a model does.
    """

    min_quality: float | None
    """The least quality, in the units of the catalog's index; None: the play's, or the task's."""
    task: str | None
    """What the call is for: a name that the application gives."""
    min_pass_rate: float | None
    """The least share of the task's evaluations that a model has to have passed, 0 to 1."""
    quantile: float | None
    """Which quantile of the predicted time counts; None: the play's, or the median."""
    urgency: Urgency | None
    """How urgent the call is for the `Urgency` play; "interactive" also means quantile 0.95, where none is given."""

    def __new__(
        cls,
        *,
        min_quality: float | None = None,
        task: str | None = None,
        min_pass_rate: float | None = None,
        quantile: float | None = None,
        urgency: Urgency | None = None,
    ) -> Self:
        """Raise ConfigurationError where an argument cannot be what it says."""
        given = {"min_quality": min_quality, "task": task, "min_pass_rate": min_pass_rate, "quantile": quantile}
        given["urgency"] = urgency
        asked = {name: _CHECKS[name](name, value) for name, value in given.items() if value is not None}
        query = "&".join(f"{name}={_written(value)}" for name, value in asked.items())
        route = super().__new__(cls, f"{AUTO}?{query}" if query else AUTO)
        vars(route).update({**dict.fromkeys(given), "quantile": _QUANTILES.get(urgency or ""), **asked})
        return route

    @classmethod
    def parse(cls, text: str) -> Route | None:
        """Return the route that a text in the place of a model's name asks for; None where it is a plain model's.

        Raises ConfigurationError, which names what is allowed, where it asks for something else.
        """
        if not text.startswith(AUTO):
            return None
        if isinstance(text, Route):
            return text
        return _parsed(str(text))

    @property
    def asked(self) -> Mapping[str, Any]:
        """What its text says, without what it leaves open, or only follows from the urgency."""
        return {name: getattr(self, name) for name in _CHECKS if f"{name}=" in self}

    def over(self, defaults: Route) -> Route:
        """Return this route, and where it says nothing, what `defaults` says."""
        return _over(self, defaults)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Route cannot be changed: make another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Route cannot be changed: make another one")

    def __repr__(self) -> str:
        return f"Route({', '.join(f'{name}={value!r}' for name, value in self.asked.items())})"

    def __reduce__(self) -> tuple[Callable[[str], Route | None], tuple[str]]:
        return Route.parse, (str(self),)


def _number(name: str, value: object, low: float, high: float, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigurationError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def _quality(name: str, value: object) -> float:
    largest = math.nextafter(math.inf, 0)
    return _number(name, value, -largest, largest, "a number in the units of the catalog's index")


def _share(name: str, value: object) -> float:
    return _number(name, value, 0.0, 1.0, "a number from 0 to 1")


def _quantile(name: str, value: object) -> float:
    return _number(name, value, 0.01, 0.999, "a number from 0.01 to 0.999, such as 0.5 for the median")


def _task(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a text that is not empty, got {value!r}")
    return str(value)


def _urgency(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in get_args(Urgency):
        raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, get_args(Urgency)))}, got {value!r}")
    return str(value)


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "min_quality": _quality,
    "task": _task,
    "min_pass_rate": _share,
    "quantile": _quantile,
    "urgency": _urgency,
}


def _read(name: str, value: str) -> Any:
    if name in ("task", "urgency"):
        return value
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(f'{name} in "{AUTO}?…" must be a number, got {value!r}') from None


def _written(value: float | str) -> str:
    if isinstance(value, str):
        return quote(value, safe="")
    # A "+" would stand for a space.
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value).replace("+", "")


# Applications ask for the same few routes over and over.
@lru_cache(maxsize=1_000)
def _parsed(text: str) -> Route | None:
    rest = text.removeprefix(AUTO)
    if rest and not rest.startswith("?"):
        return None
    try:
        pairs = parse_qsl(rest[1:], keep_blank_values=True, strict_parsing=len(rest) > 1, errors="strict")
    except ValueError:
        raise ConfigurationError(f'expected "{AUTO}?name=value&…" with {ALLOWED}, got {text!r}') from None
    asked: dict[str, Any] = {}
    for name, value in pairs:
        if name not in _CHECKS:
            raise ConfigurationError(f'{name!r} is not known in "{AUTO}?…": expected {ALLOWED}')
        if name in asked:
            raise ConfigurationError(f'{name!r} stands twice in "{AUTO}?…"')
        asked[name] = _read(name, value)
    return Route(**asked)


# Routes of the same text say the same.
@lru_cache(maxsize=1_000)
def _over(route: Route, defaults: Route) -> Route:
    asked = {**defaults.asked, **route.asked}
    if route.urgency in _QUANTILES and "quantile" not in route.asked:
        asked.pop("quantile", None)
    return Route(**asked)
