"""`Route`: the model's name of a call whose model is to be chosen, and the errors for a route that cannot be chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import parse_qsl, quote

from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING

if TYPE_CHECKING:
    from fastlane.engine.pipeline import Pipeline

AUTO = "fastlane/auto"
ALLOWED = "min_quality, task, min_pass_rate and quantile"
# No provider is sent a model's name that begins so.
_PREFIX = "fastlane/"

_LARGEST = math.nextafter(math.inf, 0)
_NUMBERS = {
    "min_quality": (-_LARGEST, _LARGEST, "a number in the units of the catalog's index"),
    "min_pass_rate": (0.0, 1.0, "a number from 0 to 1"),
    "quantile": (0.01, 0.999, "a number from 0.01 to 0.999, such as 0.5 for the median"),
}
_FIELDS = ("min_quality", "task", "min_pass_rate", "quantile")


class Route(str):  # noqa: SLOT000 - its fields are in its dictionary
    """The name of a model that is yet to be chosen, with what it has to be good for.

    It is a string ("fastlane/auto?min_quality=45&task=triage"), and passes wherever the name of a model does.
    """

    min_quality: float | None
    """The least quality, in the units of the catalog's index; None: the play's, or the task's."""
    task: str | None
    """What the call is for: a name that the application gives."""
    min_pass_rate: float | None
    """The least share of the task's evaluations that a model has to have passed, 0 to 1."""
    quantile: float | None
    """Which quantile of the predicted time counts; None: the play's, or the median."""

    def __new__(
        cls,
        *,
        min_quality: float | None = None,
        task: str | None = None,
        min_pass_rate: float | None = None,
        quantile: float | None = None,
    ) -> Self:
        """Raise ConfigurationError for an argument that is out of range or of another type."""
        given = dict(zip(_FIELDS, (min_quality, task, min_pass_rate, quantile), strict=True))
        asked = {name: _checked(name, value) for name, value in given.items() if value is not None}
        query = "&".join(f"{name}={_written(value)}" for name, value in asked.items())
        route = super().__new__(cls, f"{AUTO}?{query}" if query else AUTO)
        vars(route).update({**dict.fromkeys(_FIELDS), **asked})
        return route

    @classmethod
    def parse(cls, text: str) -> Route | None:
        """Return the route that a model's name asks for; None for the name of a model.

        Raises ConfigurationError, which lists what is allowed, for a query that says anything else.
        """
        if not text.startswith(AUTO):
            return None
        return text if isinstance(text, Route) else _parsed(str(text))

    @property
    def asked(self) -> Mapping[str, Any]:
        """The fields that it gives."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def over(self, defaults: Route) -> Route:
        """Return this route, with the fields of `defaults` where it has none."""
        return _over(self, defaults)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Route cannot be changed: make another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Route cannot be changed: make another one")

    def __repr__(self) -> str:
        return f"Route({', '.join(f'{name}={value!r}' for name, value in self.asked.items())})"

    def __reduce__(self) -> tuple[Callable[[str], Route | None], tuple[str]]:
        return Route.parse, (str(self),)


def asks_for_a_route(model: str) -> bool:
    """Return whether a model's name asks for a route.

    Raises ConfigurationError for another name that begins with "fastlane/", in any case and with any blanks around it.
    """
    if model.startswith(AUTO) and model[len(AUTO) : len(AUTO) + 1] in ("", "?"):
        return True
    if model.strip().lower().startswith(_PREFIX):
        raise ConfigurationError(
            f'model={model!r:.80} is not a route: expected "{AUTO}" or "{AUTO}?name=value&…" with {ALLOWED}, in '
            f'lower case and without blanks; names that begin with "{_PREFIX}" are not sent to a provider'
        )
    return False


def refuse_route(options: Any) -> None:
    """Raise ConfigurationError if a call of a client that was made with FASTLANE_DISABLED asks for a route."""
    bodies = [body for body in (options.extra_json, options.json_data) if isinstance(body, Mapping) and "model" in body]
    model = bodies[0]["model"] if bodies else None
    if isinstance(model, str) and asks_for_a_route(model):
        raise ConfigurationError(
            f"model={model!r:.80} asks for a route, and fastlane is off because FASTLANE_DISABLED is set: name a model "
            "or unset the variable"
        )


def check_route(model: str, endpoint: str, pipeline: Pipeline) -> None:
    """Raise ConfigurationError if a model's name asks for a route where none can be chosen."""
    if not asks_for_a_route(model):
        return
    if not pipeline.routes_calls:
        raise ConfigurationError(
            f"model={model!r} asks for a route, and this client has no Routing play: make it with "
            "plays=[Routing(catalog)], or name a model"
        )
    if endpoint not in GENERATING:
        raise ConfigurationError(
            f"model={model!r} asks for a route, and calls of {endpoint} are not routed: expected one of "
            f"{', '.join(sorted(GENERATING))}; name a model here"
        )


def _checked(name: str, value: object) -> Any:
    if name in _NUMBERS:
        low, high, expected = _NUMBERS[name]
        if not isinstance(value, bool) and isinstance(value, int | float) and low <= value <= high:
            return float(value)
    else:
        expected = "a text that is not empty"
        if isinstance(value, str) and value:
            return str(value)
    raise ConfigurationError(f"{name} must be {expected}, got {value!r}")


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
        if name not in _FIELDS:
            raise ConfigurationError(f'{name!r} is not known in "{AUTO}?…": expected {ALLOWED}')
        if name in asked:
            raise ConfigurationError(f'{name!r} stands twice in "{AUTO}?…"')
        try:
            asked[name] = float(value) if name in _NUMBERS else value
        except ValueError:
            raise ConfigurationError(f'{name} in "{AUTO}?…" must be a number, got {value!r}') from None
    return Route(**asked)


# Routes of the same text are equal.
@lru_cache(maxsize=1_000)
def _over(route: Route, defaults: Route) -> Route:
    return Route(**{**defaults.asked, **route.asked})
