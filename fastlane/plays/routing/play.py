"""01 Route: the fastest model above the quality bar, for this call, and the next one where that fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.errors import CallRefusedError, ConfigurationError

from .section import RoutingSection

if TYPE_CHECKING:
    from fastlane.engine.session import Session
    from fastlane.providers import ProviderFacts
    from fastlane.transport.pool.pool import ConnectionForecast

    from ._knowledge import Knowledge
    from ._plan import RoutePlan
    from .catalog.models import Catalog, CatalogModel
    from .catalog.route import Route


@dataclass(frozen=True, slots=True)
class Routing(Play):
    """Send a call that names no model to the one of a catalog that is good enough, and should be the fastest for it.

    Asked for with `model="fastlane/auto"` or `model=Route(...)`; a call that names a model goes to that model.
    Where a model fails before anything of its answer was handed out, the next one is tried. Raises CallRefusedError
    where no model of the catalog can answer a call.
    """

    stage: ClassVar[Stage] = Stage.ROUTE
    section = RoutingSection
    routes: ClassVar[bool] = True
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    catalog: Catalog | str | Path
    """The models, or the path of a TOML file of them."""
    _: KW_ONLY
    min_quality: float | None = None
    """The least quality, in the units of the catalog's index, for calls that do not say it themselves."""
    task: str | None = None
    """What the calls are for, where they do not say it: a name of the catalog's tasks; any other where a bar is given,
    or the catalog has no tasks."""
    min_pass_rate: float | None = None
    """The least share of passed evaluations of the task, 0 to 1, that a model has to have by 95 % confidence."""
    quantile: float | None = None
    """Which quantile of the predicted time counts: 0.5, the median, where nobody says anything else."""
    first_token_timeout: float | None = None
    """Seconds without a first token after which the next model is tried; None: as learned of each model."""
    deadline: float | None = None
    """Seconds for all attempts of a call together; None: its time-out for reading."""
    fallbacks: int = 2
    """How many other models are tried where one fails."""
    exploration: float = 0.02
    """The share of calls that may go to a model that is not predicted to be the fastest, to see whether it is."""
    seed: int = 0
    """Of what is drawn by chance (how long a model that failed is left alone), so that runs can be repeated."""
    store: str | None = None
    """Where replicas share what they learn, such as "redis://host:6379/0" (extra `redis`); None: in this process."""
    streams: bool = True
    """Whether an answer that the application does not stream is streamed underneath, so that its first token is
    seen."""
    forward_headers: Sequence[str] = ("traceparent", "tracestate")
    """Headers of a call (`extra_headers`) that may go to other providers than the client's own."""
    knowledge: Knowledge = field(init=False, repr=False, compare=False)
    defaults: Route = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # With the client and not with `import fastlane`.
        from ._knowledge import Knowledge
        from .catalog.models import Catalog
        from .catalog.route import Route
        from .upstreams import checked_forward

        if isinstance(self.catalog, str | Path):
            object.__setattr__(self, "catalog", Catalog.load(self.catalog))
        if not isinstance(self.catalog, Catalog):
            raise ConfigurationError(
                "Routing(catalog) takes a fastlane.catalog.Catalog or the path of a TOML file, got "
                f"{type(self.catalog).__name__}"
            )
        _seconds("first_token_timeout", self.first_token_timeout)
        _seconds("deadline", self.deadline)
        if not isinstance(self.fallbacks, int) or isinstance(self.fallbacks, bool) or self.fallbacks < 0:
            raise ConfigurationError(f"Routing(fallbacks=...) takes a whole number from 0, got {self.fallbacks!r}")
        exploration = self.exploration
        if not isinstance(exploration, int | float) or isinstance(exploration, bool) or not 0 <= exploration <= 0.5:
            raise ConfigurationError(f"Routing(exploration=...) takes a share from 0 to 0.5, got {exploration!r}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ConfigurationError(f"Routing(seed=...) takes a whole number, got {self.seed!r}")
        for name in ("streams",):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"Routing({name}=...) takes True or False, got {getattr(self, name)!r}")
        object.__setattr__(self, "forward_headers", checked_forward(self.forward_headers))
        _known_facts(self.catalog)
        defaults = Route(
            min_quality=self.min_quality, task=self.task, min_pass_rate=self.min_pass_rate, quantile=self.quantile
        )
        _known_task(defaults, self.catalog)
        object.__setattr__(self, "defaults", defaults)
        object.__setattr__(
            self, "knowledge", Knowledge(self.catalog, seed=self.seed, exploration=float(self.exploration))
        )
        if self.store is not None:
            self.knowledge.share(self.store)

    def __repr__(self) -> str:
        # The fingerprint: a catalog by its digest, and no address of a store, which may hold a password.
        shown = [repr(self.catalog)]
        for name, given in type(self).__dataclass_fields__.items():
            if name in ("catalog", "store") or not given.init:
                continue
            value = getattr(self, name)
            if value != given.default:
                shown.append(f"{name}={value!r}")
        if self.store is not None:
            shown.append("store=...")
        return f"Routing({', '.join(shown)})"

    def open(self, call: Call) -> Session | None:
        """Take part in calls that ask for a route."""
        from .requests import asks_for_a_route
        from .session import RoutingSession

        return RoutingSession(self) if call.model is not None and asks_for_a_route(call.model) else None

    def decide(
        self,
        call: Call,
        *,
        facts: ProviderFacts,
        outlook: Callable[[CatalogModel], ConnectionForecast],
        missing_key: Callable[[CatalogModel], str | None],
        encoded_share: Callable[[str], float | None] | None = None,
        is_checked: bool = False,
    ) -> RoutePlan:
        """Decide which models are tried, and in which order.

        `facts`: of the caller's own provider; `outlook`, `missing_key`: what is known of the connection to a model,
        and why it cannot be called for want of a key; `encoded_share`: the share of its bytes that a body has for an
        origin once it is encoded; `is_checked`: whether answers are checked against their schema.
        Raises CallRefusedError where no model can answer the call, and ConfigurationError where it is for a task that
        the catalog does not have, and nobody gives a bar.
        """
        from ._plan import RoutePlan
        from .catalog.models import Catalog
        from .catalog.route import Route

        route = Route.parse(call.model) if call.model is not None else None
        catalog, knowledge, now_ns = self.catalog, self.knowledge, call.issued_ns
        assert route is not None
        assert isinstance(catalog, Catalog)
        knowledge.at(now_ns)
        if self.defaults.asked:
            route = route.over(self.defaults)
        _known_task(route, catalog)
        question = knowledge.asking.question(
            call,
            route,
            catalog,
            siblings_outlook=outlook,
            facts_of=lambda model: knowledge.facts_of(model, facts),
            now_ns=now_ns,
            encoded_share=encoded_share,
            is_checked=is_checked,
        )
        keyless = {model.name: why for model in catalog.models if (why := missing_key(model)) is not None}
        if keyless:
            question = replace(question, unfit={**keyless, **question.unfit})
        decision = knowledge.memory.decide(question, now_ns)
        if not decision.ranked:
            reasons = "; ".join(f"{one.name}: {one.why_not}" for one in decision.rejected)
            raise CallRefusedError(f"no model of the catalog can answer this call ({route}): {reasons}")
        return RoutePlan(
            route=route,
            question=question,
            decision=decision,
            steps=tuple([catalog.named(one.name) for one in (*decision.ranked, *decision.resting)]),
            catalog=catalog,
            knowledge=knowledge,
            first_token_timeout_s=self.first_token_timeout,
            deadline_s=self.deadline,
            fallbacks=self.fallbacks,
            forward_headers=tuple(self.forward_headers),
            streams=self.streams,
        )

    def report(self) -> list[dict[str, Any]]:
        """What is known of each model, one row each: how fast it is, how often it was chosen, whether it fails."""
        return self.knowledge.memory.report(self.knowledge.latest_ns)


def _seconds(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConfigurationError(f"Routing({name}=...) takes seconds above 0, or None, got {value!r}")


def _known_task(route: Route, catalog: Catalog) -> None:
    """A slip in a task's name would take away the bar that the catalog has for the task, and nobody would notice."""
    task, tasks = route.task, catalog.tasks
    if task is None or not tasks or task in tasks or route.min_quality is not None or route.min_pass_rate is not None:
        return
    raise ConfigurationError(
        f"task: expected one of the catalog's tasks ({', '.join(map(repr, tasks))}), got {task!r}, for which nothing "
        "says how good a model has to be: add it to the catalog's tasks, or give a min_quality or a min_pass_rate"
    )


def _known_facts(catalog: Catalog) -> None:
    """Here and not where the catalog is read: the application may register facts of its own in between."""
    from fastlane.providers import names

    known: tuple[str, ...] = ()
    for number, model in enumerate(catalog.models):
        if model.facts is None or model.facts in (known := known or names()):
            continue
        raise ConfigurationError(
            f'Routing(catalog): models[{number}] ("{model.name}"): facts: expected one of {", ".join(known)}, got '
            f"{model.facts!r}; register facts of your own with fastlane.providers.register, before the play is made"
        )
