"""What the conventions call a provider, by the origin that a call goes to."""

from __future__ import annotations

from ..providers import facts_of


def provider_name(origin: str) -> str:
    """`gen_ai.provider.name`: the conventions' word for a provider that is known, else that of its API."""
    facts = facts_of(origin)
    return facts.telemetry_name or facts.slug
