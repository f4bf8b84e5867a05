"""The models that a call may be routed to, as data: where they are, what they can do, how good and fast they are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._route import Route as Route
from ._scores import (
    Score as Score,
    Scoreboard as Scoreboard,
    clears as clears,
    lower_bound as lower_bound,
    score as score,
    scoreboard as scoreboard,
    upper_bound as upper_bound,
)

if TYPE_CHECKING:
    from ._models import (
        ABILITIES as ABILITIES,
        Catalog as Catalog,
        CatalogModel as CatalogModel,
        Price as Price,
        Task as Task,
    )

# What pydantic makes classes of is loaded when it is first asked for: a call of a plain model needs none of it.
_LATER = frozenset({"ABILITIES", "Catalog", "CatalogModel", "Price", "Task"})

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load what is made with pydantic."""
        if name in _LATER:
            return getattr(import_module("._models", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ABILITIES",
    "Catalog",
    "CatalogModel",
    "Price",
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
