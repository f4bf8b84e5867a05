"""Models of a catalog, and what is known of their providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlane.catalog import CatalogModel
from fastlane.plays.routing.adapting import Adapted, ModelRules, adapted, demands_of
from fastlane.providers import ProviderFacts, facts_named
from tests.plays.facts import fact

CHAT, RESPONSES, COMPLETIONS = "/chat/completions", "/responses", "/completions"
MESSAGES = [{"role": "user", "content": "Name a river."}]


def model(name: str = "m-2", *, base_url: str | None = "https://second.invalid/v1", **fields: Any) -> CatalogModel:
    return CatalogModel(
        name=name,
        base_url=base_url,
        first_token_s=((1_000, 0.5),),
        tokens_per_s=100.0,
        endpoints=(CHAT, RESPONSES, COMPLETIONS),
        **fields,
    )


OWN, OTHER = model(base_url=None), model()
NOTHING = facts_named("unknown")


def facts(**parameters: Any) -> ProviderFacts:
    """What a provider does with its requests' fields."""
    return ProviderFacts.model_validate(
        {"slug": "second", "parameters": {name.replace("__", "."): fact(value) for name, value in parameters.items()}}
    )


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fastlane/auto", "messages": MESSAGES, **fields}


def unfit(body: Mapping[str, Any], endpoint: str, model: CatalogModel, facts: ProviderFacts | None) -> str | None:
    return demands_of(body, endpoint).unmet_by(ModelRules(model, facts))


def adapt(
    body: Mapping[str, Any],
    endpoint: str,
    model: CatalogModel,
    facts: ProviderFacts | None,
    extra: frozenset[str] = frozenset(),
) -> Adapted:
    return adapted(body, endpoint, model.model, ModelRules(model, facts), extra=extra)
