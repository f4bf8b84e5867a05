"""Whether a call asks for a route, and the errors for a route that cannot be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlane.engine.pipeline import Pipeline
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING

_ROUTE = "fastlane/auto"
ALLOWED = "min_quality, task, min_pass_rate, quantile and urgency"
"""What a route may ask for: the fields of `fastlane.catalog.Route`."""
# No provider is sent a model's name that begins so.
_PREFIX = "fastlane/"


def asks_for_a_route(model: str) -> bool:
    """Return whether a model's name asks for a route.

    Raises ConfigurationError for another name that begins with "fastlane/", whatever its case and blanks around it.
    """
    if model.startswith(_ROUTE) and model[len(_ROUTE) : len(_ROUTE) + 1] in ("", "?"):
        return True
    if model.strip().lower().startswith(_PREFIX):
        raise ConfigurationError(
            f'model={model!r:.80} is not a route: expected "{_ROUTE}" or "{_ROUTE}?name=value&…" with {ALLOWED}, in '
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
