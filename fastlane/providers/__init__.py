"""What is known of providers and servers, as data: one TOML file for each, every fact with its source and date."""

from typing import TYPE_CHECKING, Any

from ._registry import (
    facts_named as facts_named,
    facts_of as facts_of,
    facts_said as facts_said,
    hear as hear,
    load as load,
    names as names,
    register as register,
    registered as registered,
)
from ._schema import Evidence as Evidence, Fact as Fact, ProviderFacts as ProviderFacts

__all__ = [
    "Evidence",
    "Fact",
    "ProviderFacts",
    "facts_named",
    "facts_of",
    "facts_said",
    "hear",
    "load",
    "names",
    "register",
    "registered",
]

if TYPE_CHECKING:
    from openai.providers import bedrock as bedrock, vertex as vertex
else:

    def __getattr__(name: str) -> Any:
        """What `from openai.providers import …` gives."""
        from openai import providers

        if name in providers.__all__:
            return getattr(providers, name)
        raise AttributeError(f"module 'fastlane.providers' has no attribute {name!r}")
