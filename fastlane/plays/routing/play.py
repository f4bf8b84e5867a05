"""01 Route: the fastest model that is good enough for this call, and the next one where that fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.settings import settings
from fastlane.errors import CallRefusedError, ConfigurationError

from .catalog.models import Catalog
from .catalog.route import Route, asks_for_a_route
from .clients import checked_forward
from .knowledge import RoutingKnowledge
from .section import RoutingSection
from .session import RoutingSession

if TYPE_CHECKING:
    from fastlane.engine.session import Session

    from .router import Decision, RouteQuery

Positive = Annotated[float, Field(gt=0)]


@settings
class Routing(Play):
    """Send a call that names no model to the one of a catalog that is good enough, and should be the fastest for it.

    Use it with `model="fastlane/auto"` or `model=Route(...)`; a call that names a model goes to that model.
    Where a model fails before anything of its answer was handed out, the next one is tried. Raises CallRefusedError
    where no model of the catalog can answer a call.
    """

    stage: ClassVar[Stage] = Stage.ROUTE
    section = RoutingSection
    routes: ClassVar[bool] = True
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    catalog: Annotated[
        Catalog | str | Path, Field(description="a fastlane.catalog.Catalog or the path of a TOML file")
    ] = field(kw_only=False)
    """The models, or the path of a TOML file of them."""
    min_quality: float | None = None
    """The least quality, in the units of the catalog's index, for calls that do not say it themselves."""
    task: str | None = None
    """What the calls are for, where they do not say it: a name of the catalog's tasks; any other where a bar is given,
    or the catalog has no tasks."""
    min_pass_rate: float | None = None
    """The least share of passed evaluations of the task, 0 to 1, that a model has to have from 20 on."""
    quantile: float | None = None
    """Which quantile of the predicted time counts; None: 0.5, the median."""
    first_token_timeout_s: Positive | None = None
    """Seconds without a first token after which the next model is tried; None: as learned of each model."""
    deadline_s: Positive | None = None
    """Seconds for all attempts of a call together; None: its timeout for reading."""
    fallbacks: Annotated[int, Field(ge=0)] = 2
    """How many other models are tried where one fails."""
    exploration: Annotated[float, Field(ge=0, le=0.5, description="a share from 0 to 0.5")] = 0.02
    """The share of calls that may go to a model that is not predicted to be the fastest, to see whether it is."""
    streams: bool = True
    """Whether an answer that the application does not stream is streamed underneath, so that its first token is
    seen."""
    forward_headers: Annotated[Sequence[str], BeforeValidator(checked_forward)] = ("traceparent", "tracestate")
    """Headers of a call (`extra_headers`) that may go to other providers than the client's own."""
    knowledge: RoutingKnowledge = field(init=False, repr=False, compare=False)
    """What the play has learned: it is shared by all clients that this object is given to."""
    defaults: Route = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        catalog = self.catalog if isinstance(self.catalog, Catalog) else Catalog.load(self.catalog)
        _check_facts(catalog)
        defaults = Route(
            min_quality=self.min_quality, task=self.task, min_pass_rate=self.min_pass_rate, quantile=self.quantile
        )
        _check_task(defaults, catalog)
        knowledge = RoutingKnowledge(catalog, exploration=self.exploration)
        for name, value in (("catalog", catalog), ("defaults", defaults), ("knowledge", knowledge)):
            object.__setattr__(self, name, value)

    def open(self, call: Call) -> Session | None:
        """Take part in calls that ask for a route."""
        return RoutingSession(self) if call.model is not None and asks_for_a_route(call.model) else None

    def route_of(self, call: Call) -> Route:
        """Return the route that a call asks for, with the play's defaults.

        Raises ConfigurationError if it is for a task that the catalog does not have, and no bar is given.
        """
        route = Route.parse(call.model or "")
        assert route is not None
        route = route.over(self.defaults)
        _check_task(route, self.knowledge.catalog)
        return route

    def decide(self, call: Call, route: Route, **known: Any) -> tuple[RouteQuery, Decision]:
        """Decide which models are tried, and in which order. `known`: see `RoutingKnowledge.query`.

        Raises CallRefusedError if no model can answer the call.
        """
        query = self.knowledge.query(call, route, **known)
        decision = self.knowledge.router.decide(query, call.issued_ns)
        if not decision.ranked:
            reasons = "; ".join(f"{one.name}: {one.why_not}" for one in decision.rejected)
            raise CallRefusedError(f"no model of the catalog can answer this call ({route}): {reasons}")
        return query, decision

    def report(self) -> list[dict[str, Any]]:
        """Return what is known of each model: how fast it is, how often it was chosen, whether it fails."""
        return self.knowledge.router.report(self.knowledge.latest_ns)


def _check_task(route: Route, catalog: Catalog) -> None:
    """A slip in a task's name would take away the bar that the catalog has for the task, unnoticed."""
    task, tasks = route.task, catalog.tasks
    if task is None or not tasks or task in tasks or route.min_quality is not None or route.min_pass_rate is not None:
        return
    raise ConfigurationError(
        f"task: expected one of the catalog's tasks ({', '.join(map(repr, tasks))}), got {task!r}, for which nothing "
        "says how good a model has to be: add it to the catalog's tasks, or give a min_quality or a min_pass_rate"
    )


def _check_facts(catalog: Catalog) -> None:
    """Here and not where the catalog is read: the application may register facts of its own in between."""
    from fastlane.providers import names

    for number, model in enumerate(catalog.models):
        if model.facts is not None and model.facts not in (known := names()):
            raise ConfigurationError(
                f'Routing(catalog): models[{number}] ("{model.name}"): facts: expected one of {", ".join(known)}, got '
                f"{model.facts!r}; register facts of your own with fastlane.providers.register, before the play is made"
            )
