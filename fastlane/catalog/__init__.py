"""Models that calls may be routed to, and routes that choose among them: for `Routing`."""

from ..plays.routing.catalog.models import (
    CAPABILITIES as CAPABILITIES,
    Catalog as Catalog,
    CatalogModel as CatalogModel,
    ModelPrice as ModelPrice,
    Task as Task,
)
from ..plays.routing.catalog.route import Route as Route
from ..plays.routing.catalog.scores import Score as Score

__all__ = [
    "CAPABILITIES",
    "Catalog",
    "CatalogModel",
    "ModelPrice",
    "Route",
    "Score",
    "Task",
]
