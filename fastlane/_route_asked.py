"""Whether a call asks for a model to be chosen for it, and what it is told where that cannot be."""

from __future__ import annotations

from ._exceptions import ConfigurationError

# Endpoints whose JSON bodies plays may rewrite. Embeddings and uploads carry mappings too, which are not prompts.
PLANNED_ENDPOINTS = frozenset({"/chat/completions", "/completions", "/responses"})

# What stands in the place of a model where one is to be chosen.
_ROUTE = "fastlane/auto"


def asks_for_a_route(model: str) -> bool:
    """Whether what stands in the place of a model's name asks for one to be chosen.

    Raises ConfigurationError where it is so near to that that no provider will know a model of the name.
    """
    if model.startswith(_ROUTE) and model[len(_ROUTE) : len(_ROUTE) + 1] in ("", "?"):
        return True
    # Blanks and capitals come out of files and out of the environment.
    name = model.strip().partition("?")[0].rstrip(" /")
    if len(name) == len(_ROUTE) and name.lower() == _ROUTE:
        raise ConfigurationError(
            f'model={model!r} asks for no route: did you mean "{_ROUTE}", or "{_ROUTE}?task=..."? It is written in '
            "small letters, without a blank"
        )
    return False


def not_routed(model: str, endpoint: str, *, routes: bool) -> ConfigurationError:
    """The error over a call that asks for a route where there is none; `routes`: the client has the play."""
    if routes:
        return ConfigurationError(
            f"model={model!r} asks for a route, and calls of {endpoint} are not routed: expected one of "
            f"{', '.join(sorted(PLANNED_ENDPOINTS))}; name a model here"
        )
    return ConfigurationError(
        f"model={model!r} asks for a route, and this client has no Routing play: make it with "
        "plays=[Routing(catalog)], or name a model"
    )
