"""What a call cannot do without, and whether an upstream has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..catalog._models import CatalogModel
    from ..providers import ProviderFacts


def needs_of(body: Mapping[str, Any], endpoint: str) -> frozenset[str]:
    """Return the abilities that a body cannot do without."""
    return frozenset({"tools"} if body.get("tools") else ())


def unfit(body: Mapping[str, Any], endpoint: str, model: CatalogModel, facts: ProviderFacts) -> str | None:
    """Return why a model cannot answer this call without changing what comes back; None where it can."""
    return None
