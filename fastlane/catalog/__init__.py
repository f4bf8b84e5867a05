"""Models that calls may be routed to, routes that choose among them, and scores of their evaluations: for `Routing`."""

from ..plays.routing.catalog import (
    Route as Route,
    Score as Score,
    Scoreboard as Scoreboard,
    clears as clears,
    lower_bound as lower_bound,
    score as score,
    scoreboard as scoreboard,
    upper_bound as upper_bound,
)
from ..plays.routing.catalog.models import (
    CAPABILITIES as CAPABILITIES,
    Catalog as Catalog,
    CatalogModel as CatalogModel,
    ModelPrice as ModelPrice,
    Task as Task,
)

__all__ = [
    "CAPABILITIES",
    "Catalog",
    "CatalogModel",
    "ModelPrice",
    "Route",
    "Score",
    "Scoreboard",
    "Task",
    "clears",
    "lower_bound",
    "score",
    "scoreboard",
    "upper_bound",
]
