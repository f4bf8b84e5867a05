"""What the driver is told of one routed call: which upstreams to try, in which order, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from ._decision import Decision
from ._knowledge import Knowledge
from ._question import Question
from .catalog.models import Catalog, CatalogModel
from .catalog.route import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlan:
    """The plan of one call's way."""

    route: Route
    question: Question
    decision: Decision
    steps: tuple[CatalogModel, ...]
    """What is tried, in order: the choice first."""
    catalog: Catalog
    knowledge: Knowledge
    """Which is told of what fails on the way."""
    first_token_timeout_s: float | None
    """Seconds without a first token after which the next one is tried; None: as learned of each model."""
    deadline_s: float | None
    """Seconds for all attempts together; None: the call's own time-out."""
    fallbacks: int
    """How many other models are tried."""
    forward_headers: tuple[str, ...]
    """Names of the caller's headers of a call that may go to other providers."""
    streams: bool
    """Whether an answer that the application does not stream is streamed underneath."""
