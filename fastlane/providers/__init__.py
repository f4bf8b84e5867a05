"""What is known of providers and servers, as data: one TOML file for each, every fact with its source and date."""

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
