"""Whether a call asks for a model to be chosen for it, and what it is told where that cannot be."""

from __future__ import annotations

from ._exceptions import ConfigurationError

# Endpoints whose JSON bodies plays may rewrite. Embeddings and uploads carry mappings too, which are not prompts.
PLANNED_ENDPOINTS = frozenset({"/chat/completions", "/completions", "/responses"})

# What stands in the place of a model where one is to be chosen.
_ROUTE = "fastlane/auto"


def asks_for_a_route(model: str) -> bool:
    """Whether what stands in the place of a model's name asks for one to be chosen."""
    return model.startswith(_ROUTE) and model[len(_ROUTE) : len(_ROUTE) + 1] in ("", "?")


def not_routed(model: str, endpoint: str, *, routes: bool) -> ConfigurationError:
    """The error over a call that asks for a route where there is none; `routes`: the client has the play."""
    if routes:
        return ConfigurationError(
            f"model={model!r} asks for a route, and calls of {endpoint} are not routed: expected one of "
            f"{', '.join(sorted(PLANNED_ENDPOINTS))}; name a model here"
        )
    return ConfigurationError(
        f"model={model!r} asks for a route, and this client has no Routing play: make it with "
        "plays=[..., Routing(catalog)], or name a model"
    )
