"""What a model costs, by the catalog."""

from __future__ import annotations

from pathlib import Path

from ..plays.routing.catalog.models import Catalog, ModelPrice

_CURRENCY = "USD"


def price_of(model: str, catalog: Path | None) -> ModelPrice | None:
    """Return a model's price in US dollars; None where the catalog does not hold it, or is in another currency.

    Raises ConfigurationError for a file that is no catalog.
    """
    known = Catalog.example() if catalog is None else Catalog.load(catalog)
    if known.currency != _CURRENCY:
        return None
    found = next((each for each in known.models if model in (each.name, each.model)), None)
    return found.price if found is not None else None
