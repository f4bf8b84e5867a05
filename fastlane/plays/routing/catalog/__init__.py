"""The models that a call may be routed to, as data: where they are, what they can do, how good and fast they are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .route import Route as Route
from .scores import (
    Score as Score,
    Scoreboard as Scoreboard,
    clears as clears,
    lower_bound as lower_bound,
    score as score,
    scoreboard as scoreboard,
    upper_bound as upper_bound,
)

if TYPE_CHECKING:
    from .models import (
        CAPABILITIES as CAPABILITIES,
        Catalog as Catalog,
        CatalogModel as CatalogModel,
        ModelPrice as ModelPrice,
        Task as Task,
    )

# What pydantic makes classes of is loaded when it is first asked for: a call of a plain model needs none of it.
_LATER = frozenset({"CAPABILITIES", "Catalog", "CatalogModel", "ModelPrice", "Task"})

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load what is made with pydantic."""
        if name in _LATER:
            return getattr(import_module(".models", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
