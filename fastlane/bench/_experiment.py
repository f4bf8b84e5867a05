"""An experiment: which arms are compared on what, on which provider, under which load, until when."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..plays import Play
from ..plays.routing.catalog.models import Catalog, ModelPrice
from ..providers.origins import origin_of
from ._arms import AGAIN, Arm, arms_named, attributing, copy_of, counterparts
from .load import Closed, Load, Open, RunBudget, cells_of
from .progress import Progress
from .recorded import DEFAULT_METRICS, Cell, RecordedRun, Role, metric_named
from .workloads import Workload, code_review

if TYPE_CHECKING:
    from ..emulator import RequestLog
    from .running import MakeShard


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProvider:
    """A provider that takes requests now."""

    base_url: str
    api_key: str
    model: str
    one_way_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables by which a client's process trusts its certificate."""
    limit_field: str = "max_completion_tokens"
    read_log: Callable[[], tuple[RequestLog, ...]] | None = None
    """The provider's own account of every request; None for a real provider, which gives none."""

    @property
    def embedded(self) -> bool:
        return self.read_log is not None

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The embedded provider, in a process of its own, behind a wire. Raises ConfigurationError."""

    preset: str = "bench"
    round_trip_time_s: float = 0.04
    seed: int = 0
    model: str = "bench"
    """Name of the model in requests; it serves any."""

    def __post_init__(self) -> None:
        from ..emulator import preset
        from ..emulator.wire import Wire

        preset(self.preset)
        Wire(round_trip_time_s=self.round_trip_time_s)

    def describe(self) -> str:
        return f"embedded provider, preset {self.preset!r}, round trip {self.round_trip_time_s * 1e3:g} ms"

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        from ..emulator import Emulator, preset
        from ..emulator.wire import Wire

        wire = Wire(round_trip_time_s=self.round_trip_time_s)
        with Emulator(model=preset(self.preset), seed=self.seed, wire=wire) as emulator:
            yield RunningProvider(
                base_url=emulator.base_url,
                api_key="sk-bench",
                model=self.model,
                environment=dict(emulator.environment),
                one_way_s=self.round_trip_time_s / 2,
                read_log=emulator.log,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A provider on the network. Raises ConfigurationError if its key is not in the environment."""

    base_url: str
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    limit_field: str = "max_completion_tokens"
    """Name of the body's field that limits the answer's tokens; older servers know only "max_tokens"."""

    def __post_init__(self) -> None:
        if origin_of(self.base_url) is None:
            wanted = "the base URL must begin with https:// or http://"
            raise ConfigurationError(f"{wanted}, got {self.base_url!r}: an example is https://api.openai.com/v1")
        if not os.environ.get(self.api_key_env):
            said = f"the environment variable {self.api_key_env} is not set"
            raise ConfigurationError(f"{said}: put the provider's key into it, or name another with --api-key-env")

    def describe(self) -> str:
        limit = "" if self.limit_field == "max_completion_tokens" else f", answers limited by {self.limit_field!r}"
        # A password in front of the host and a key in the query belong in no report.
        url = urlsplit(self.base_url)
        shown = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
        return f"{shown}, model {self.model!r}{limit}"

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        key = os.environ[self.api_key_env]
        yield RunningProvider(base_url=self.base_url, api_key=key, model=self.model, limit_field=self.limit_field)


Provider = Embedded | Real


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Arms, what they are asked, how, and until when. Raises ConfigurationError for what cannot work.

    In a block every arm sends the same request once, in an order drawn at random: what a provider does from minute to
    minute meets all arms alike. The reference's copy takes part as an arm of its own, so that its interval says by how
    much two equal arms differ here.
    """

    arms: Sequence[Arm | str] = ("baseline", "fastlane")
    """Arms, or names of them as `arms_named` takes them."""
    workload: Workload | Sequence[Workload] = field(default_factory=code_review)
    """One, or several scenarios, which are cells of their own."""
    load: Load = field(default_factory=Closed)
    metrics: Sequence[str] = DEFAULT_METRICS
    provider: Provider = field(default_factory=Embedded)
    budget: RunBudget = field(default_factory=RunBudget)
    """Of all cells together: each of those that are left may spend an equal part of what is left."""
    again: bool = True
    attribute: Sequence[Play] = ()
    """Plays whose parts in the whole change are wanted: arms with none, each alone, all but each, and all of them are
    added to `arms`, which then may be empty."""
    reference: str | None = None
    """Name of the arm that all others are compared with; None: each arm is compared with the first stock client of its
    kind, synchronous or asynchronous, or else with the first stock client, or else with the first arm."""
    warm_up: int = 1
    """Requests that every arm's process sends before each cell, which count for nothing; its first one comes before."""
    max_output_tokens: int | None = None
    """Most output tokens asked of a request, 2 at least; None: as many as the workload says."""
    passes: int | None = None
    """How often a cell replays the workload at most, each time with other salts; None: until something else ends it."""
    processes: int = 1
    seed: int = 0
    """Of the arms' orders, the cells' order, the salts, the arrivals, the starts, and the provider's draws."""
    name: str = "bench"

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        arms = self.arms
        if self.attribute and tuple(arms) == Benchmark.__dataclass_fields__["arms"].default:
            arms = ()
        given = [arms_named([arm])[0] if isinstance(arm, str) else arm for arm in arms]
        attributed = attributing(self.attribute) if self.attribute else ()
        set_(self, "arms", tuple(self._with_copies([*given, *attributed])))
        set_(self, "attribute", tuple(self.attribute))
        set_(self, "metrics", tuple(metric_named(name).name for name in self.metrics))
        set_(self, "workload", (self.workload,) if isinstance(self.workload, Workload) else tuple(self.workload))
        for wrong in self._wrong():
            raise ConfigurationError(wrong)

    def _with_copies(self, arms: list[Arm]) -> list[Arm]:
        names = [arm.name for arm in arms]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"two arms are called {name!r}: records name arms, so give each its own name")
        if not arms:
            raise ConfigurationError("at least one arm is needed, got none: name some in `arms`")
        if self.reference not in (None, *names):
            said = f"the reference has to be one of the arms ({', '.join(names)}), got {self.reference!r}"
            raise ConfigurationError(said)
        compared = dict.fromkeys(names, self.reference) if self.reference else counterparts(arms)
        copies = [copy_of(arm) for arm in arms if compared[arm.name] == arm.name] if self.again else []
        return [*arms, *(copy for copy in copies if copy.name not in names)]

    def _wrong(self) -> Iterator[str]:
        load, budget = self.load, self.budget
        for name, least in (("warm_up", 0), ("processes", 1), ("max_output_tokens", 2), ("passes", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                yield f"{name} must be at least {least}, got {value}"
        if not self.metrics:
            yield "at least one metric is needed, got none: see fastlane.bench.recorded.METRICS"
        names = [workload.name for workload in self.workloads]
        if not names or len(set(names)) < len(names):
            yield f"workloads need names of their own, got {', '.join(names) or 'no workload'}"
        if isinstance(load, Open):
            if not load.rates or not all(math.isfinite(rate) and rate > 0 for rate in load.rates):
                yield f"rates must be blocks per second above 0, got {load.rates!r}"
        elif not load.users or min(load.users) < 1:
            yield f"users must be at least 1, got {load.users!r}"
        elif not math.isfinite(load.think_s) or load.think_s < 0:
            yield f"think_s must be at least 0 seconds, got {load.think_s:g}"
        elif min(load.users) < self.processes:
            least = min(load.users)
            yield f"processes must be at most the fewest users ({least}), got {self.processes}: a user is not divided"
        if len({cell.name for cell in self.cells}) < len(self.cells):
            yield f"every cell needs a load of its own, got one of them twice: {load}"
        for name, limit in asdict(budget).items():
            if limit is not None and (not math.isfinite(limit) or limit <= 0):
                yield f"the budget's {name} must be a number above 0, got {limit:g}"
        if budget == RunBudget(seconds=None) and self.passes is None:
            yield "nothing ends this run: set a budget or passes"
        arms, cells = len(self.arms), len(self.cells)
        least = arms * self.processes + cells * arms * (self.processes * self.warm_up + 1)
        if budget.calls is not None and budget.calls < least:
            yield (
                f"the budget's calls must be at least {least}, got {budget.calls}: each arm's first request in "
                f"{self.processes} process(es), {self.warm_up} for warm-up and one block in each of {cells} cell(s)"
            )
        if budget.money is not None and self.price is None:
            model = self.provider.model
            yield f"a budget of money needs the price of model {model!r}, which the catalog lacks: limit the calls"

    @property
    def resolved(self) -> tuple[Arm, ...]:
        """All arms, in the order in which reports name them."""
        return tuple(arm for arm in self.arms if isinstance(arm, Arm))

    @property
    def workloads(self) -> tuple[Workload, ...]:
        return (self.workload,) if isinstance(self.workload, Workload) else tuple(self.workload)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return cells_of(self.workloads, self.load, seed=self.seed)

    @property
    def price(self) -> ModelPrice | None:
        """What the provider's model costs by the catalog; None if it does not say."""
        model = self.provider.model
        return next((each.price for each in Catalog.example().models if model in (each.name, each.model)), None)

    def role_of(self, arm: Arm) -> Role:
        reference = self.reference_of(arm)
        if arm.name == reference:
            return "reference"
        return "again" if arm.name == reference + AGAIN else "arm"

    def reference_of(self, arm: Arm) -> str:
        """Return the name of the arm that an arm is compared with; its own name for a reference."""
        return self.reference or counterparts(self.resolved)[arm.name]

    def run(
        self,
        folder: Path | None = None,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        make_shard: MakeShard | None = None,
    ) -> RecordedRun:
        """Run it, and return what was recorded; every record is appended to files in `folder` as it comes.

        `on_progress` is called in this thread, at each cell's beginning and after each block.
        `make_shard` says where the arms' processes run; None: on this machine.

        Ctrl-C ends the run soon: requests that are under way get a moment to finish, and what was finished is
        returned. A second Ctrl-C, or one before the first block, raises KeyboardInterrupt.

        Raises ConfigurationError for a folder that cannot be used, and RunFailedError where an arm's very first request
        fails, or its process ends.
        """
        from .running import run_benchmark

        return run_benchmark(self, folder, on_progress=on_progress, make_shard=make_shard)
