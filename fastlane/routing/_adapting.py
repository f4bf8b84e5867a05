"""A call's body as another model takes it: its name, its limits, its efforts, and nothing that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..catalog._models import CatalogModel
    from ..providers import ProviderFacts


class Adapted(NamedTuple):
    """A body for one upstream."""

    body: dict[str, Any]
    changes: tuple[str, ...]
    """What was changed, one sentence each, without any value of the caller's."""


def adapted(
    body: Mapping[str, Any],
    endpoint: str,
    model: CatalogModel,
    facts: ProviderFacts,
    *,
    extra: frozenset[str] = frozenset(),
) -> Adapted:
    """Return a body for a model of the catalog."""
    return Adapted({**body, "model": model.model}, ())
