"""What is known of providers and servers, as data: one TOML file for each, every fact with its source and date."""

from typing import TYPE_CHECKING, Any

from .facts import Evidence, Fact, ProviderFacts
from .registry import facts_named, facts_of, identified_facts, load, names, note_server, register, registered

__all__ = [
    "Evidence",
    "Fact",
    "ProviderFacts",
    "facts_named",
    "facts_of",
    "identified_facts",
    "load",
    "names",
    "note_server",
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
