"""An experiment on live calls, the keyed hash that assigns units to its arms, its report, and the arms of a client."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .._environment import is_disabled
from .._fork import in_child, new_lock
from ..compat.clients import given_headers, given_query, http_client_of
from ..compat.context import restore
from ..engine.pipeline import Pipeline
from ..errors import ConfigurationError
from ..plays import Play
from ..protocol.endpoints import GENERATING
from ..records.record import CallRecord, ExperimentRecord, Why
from .comparison import METRICS, ArmSums, Comparison, Guard, compare_all, model_prices
from .ledger import ArmAssignment, EndedArm, ExperimentLedger, ExperimentState, MemoryStore, store_at

if TYPE_CHECKING:
    from ..plays.routing.catalog.models import Catalog

_log = logging.getLogger("fastlane")

# Units are assigned by a keyed hash: to the same arm in every process, on every machine, after every restart.

UnitOf: TypeAlias = Callable[[Mapping[str, Any]], str | None] | None
"""Reads the id of a call's unit from its body."""

_POINTS = float(2**53)
_current: ContextVar[str | None] = ContextVar("fastlane_experiment_unit", default=None)
_random = Random()
# A forked child must not draw the same numbers as its parent.
in_child(_random.seed)


def unit(id: str) -> AbstractContextManager[None]:
    """Name the unit of the calls in a `with` block: a user, a tenant or a conversation.

    All calls of a unit go to one arm, in every process. The id stays in this process's memory: stores, logs and exports
    hold a keyed hash. The innermost `unit` counts. Tasks that are started inside inherit it, plain threads do not.
    Raises ConfigurationError for anything but a text that is not empty.
    """
    if not isinstance(id, str) or not id:
        # The error names the type, never the text.
        got = "an empty text" if id == "" else f"a {type(id).__name__}"
        raise ConfigurationError(f'unit() takes an id such as "user-42", got {got}')
    return _named(id)


@contextmanager
def _named(id: str) -> Iterator[None]:
    token = _current.set(id)
    try:
        yield
    finally:
        restore(_current, token)


class Draw(NamedTuple):
    """The hash of one unit."""

    point: float
    """In [0, 1), uniform over units. It decides the arm."""
    unit_id_hash: str
    """Independent of `point`. It decides the bucket in which the unit's calls are counted."""


def hash_key(name: str, salt: str | None) -> bytes:
    """Return the key of an experiment's hashes. Hashes of two experiments cannot be linked."""
    return hashlib.blake2b(f"{salt or ''}\0{name}".encode("utf-8", "surrogatepass"), digest_size=32).digest()


def draw(key: bytes, unit_id: str | None) -> Draw:
    """Hash the id of a unit. None: the call is a unit of its own, drawn at random."""
    if unit_id is None:
        return Draw(_random.random(), f"{_random.getrandbits(64):016x}")
    # Keyed BLAKE2b (RFC 7693) is a pseudo-random function: without the key, the hash reveals nothing.
    digest = hashlib.blake2b(unit_id.encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest()
    return Draw((int.from_bytes(digest[:8], "big") >> 11) / _POINTS, digest[8:].hex())


def arm_at(point: float, shares: Mapping[str, float], reference: str) -> str:
    """Return the arm of a unit. Arms follow one another from 0; the reference has the rest."""
    for arm, share in shares.items():
        if point < share:
            return arm
        point -= share
    return reference


def unit_id(of: UnitOf, options: Any) -> str | None:
    """Return the id of a call's unit, or None if nothing names one. Raises what the user's function raises."""
    current = _current.get()
    if current is not None or of is None or not isinstance(options.json_data, Mapping):
        return current
    extra = options.extra_json if isinstance(options.extra_json, Mapping) else {}
    found = of(MappingProxyType({**options.json_data, **extra}))
    return found if isinstance(found, str) and found else None


# The address of a function differs between processes.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_NAME = 128


class Experiment:
    """Sends a share of a client's calls through other plays, and compares the arms: `OpenAI(experiment=...)`.

    `arms` are the plays of each arm, the reference first; `share` is the share of units, 0 to 1, of each other arm.
    `with fastlane.experiments.unit(...)` names a call's unit, or `unit`, a function of the call's body. Without either,
    each call is a unit of its own. `store` is a file, or the address of a Redis server, that the processes of the
    experiment share. `guards` end an arm that is shown to be worse. `catalog` has the prices of models. `salt` is a
    secret: without it, ids cannot be matched with hashes.

    Where the arms, shares or salt of a name change, counting begins anew. Raises ConfigurationError. As long as the
    store could not be read, calls go to the reference arm.
    """

    def __init__(
        self,
        name: str,
        arms: Mapping[str, Iterable[Play]],
        *,
        share: Mapping[str, float],
        store: str | Path,
        unit: UnitOf = None,
        guards: Sequence[Guard] = (Guard("error_rate"),),
        catalog: Catalog | None = None,
        salt: str | None = None,
    ) -> None:
        self.name = _checked_name("name", name, "encoding-2026-11")
        self.arms = _checked_arms(arms)
        self.reference, *others = self.arms
        is_share = isinstance(share, Mapping) and share.keys() == set(others)
        is_share = is_share and all(type(one) in (int, float) and 0 <= one <= 1 for one in share.values())
        example = f"{{{', '.join(f'{arm!r}: {0.5 / len(others):.2g}' for arm in others)}}}"
        takes = f"the share of units of each arm but the reference {self.reference!r}, such as {example}"
        _check(is_share and sum(share.values()) <= 1 + 1e-9, "share", takes, share)
        self.shares = {arm: float(share[arm]) for arm in others}
        _check(unit is None or callable(unit), "unit", 'a function such as lambda body: body.get("user")', unit)
        self.unit_of = unit
        are_guards = isinstance(guards, Iterable) and all(isinstance(one, Guard) for one in guards)
        _check(are_guards, "guards", 'a list such as [Guard("error_rate")]', guards)
        _check(salt is None or (isinstance(salt, str) and bool(salt)), "salt", "a text that is not empty", "another")
        prices = model_prices(catalog)
        has_prices = prices or any(play.routes for plays in self.arms.values() for play in plays)
        is_price_known = has_prices or not any(one.metric == "price" for one in guards)
        _check(bool(is_price_known), "catalog", 'a Catalog with prices for Guard("price")', catalog)
        self._is_disabled = is_disabled()
        self.key = hash_key(name, salt)
        """Of the hashes of units."""
        plays = [(arm, [_ADDRESS.sub("", repr(play)) for play in own]) for arm, own in self.arms.items()]
        definition = hashlib.blake2b(repr((plays, self.shares)).encode(), key=self.key, digest_size=8)
        kept = store_at(store, f"{name}:{definition.hexdigest()}")
        kept = MemoryStore() if self._is_disabled else kept
        self.ledger = ExperimentLedger(name, list(self.arms), kept, guards=guards, prices=prices)
        self.ledger.exchange()

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, arms={list(self.arms)})"

    def arm_of(self, unit: str) -> str | None:
        """Return the arm that calls of a unit go to now; None before the store could be read.

        Raises ConfigurationError for anything but an id.
        """
        if not isinstance(unit, str) or not unit:
            raise ConfigurationError(f"arm_of() takes the id of a unit, got {type(unit).__name__}")
        if self.ledger.ended is None:
            return None
        arm = arm_at(draw(self.key, unit).point, self.shares, self.reference)
        return self.reference if arm in self.ledger.ended else arm

    def report(self) -> ExperimentReport:
        """Return what is known so far, of all processes: `print()` shows it.

        Reads the store, which takes a few milliseconds. `report().problem` says where that failed.
        """
        self.flush()
        problem = "fastlane is disabled (FASTLANE_DISABLED)" if self._is_disabled else self.ledger.problem
        state = self.ledger.state()
        shares = {self.reference: max(0.0, 1 - sum(self.shares.values())), **self.shares}
        return ExperimentReport(
            name=self.name,
            reference=self.reference,
            arms=tuple([self._arm_report(arm, shares[arm], state) for arm in self.arms]),
            problem=problem,
        )

    def _arm_report(self, arm: str, share: float, state: ExperimentState) -> ArmReport:
        sums, reference = (state.arms.get(one, ArmSums()) for one in (arm, self.reference))
        comparisons = () if arm == self.reference else compare_all(sums, reference, len(self.arms) - 1)
        return ArmReport(name=arm, share=share, calls=sums.calls, comparisons=comparisons, ended=state.ended.get(arm))

    def score(self, call: CallRecord, *, quality: float) -> bool:
        """Score the answer to a call, 0 to 1. Return whether that counts.

        A score does not count for a call of another experiment, or of an arm that has ended. Score a call once. Raises
        ConfigurationError for what is no score.
        """
        if isinstance(quality, bool) or not isinstance(quality, int | float) or not 0 <= quality <= 1:
            raise ConfigurationError(f"score(quality=...) takes a number from 0 to 1, got {quality!r:.60}")
        if not isinstance(call, CallRecord):
            raise ConfigurationError(f"score() takes the record of a call, got {type(call).__name__}")
        record = call.experiment
        if record is None or record.name != self.name or record.why is not None:
            return False
        return self.ledger.count(float(quality), record)

    def end(self, arm: str, *, reason: str = "ended by the application") -> bool:
        """End an arm, in all processes: its units go to the reference.

        Returns False where the store is unreachable: the other processes end it once it is back. Raises
        ConfigurationError.
        """
        if arm not in self.shares:
            raise ConfigurationError(f"end() takes one of the arms {', '.join(self.shares)}, got {arm!r:.60}")
        return self.ledger.end(arm, _checked_name("reason", reason, "too dear"))

    def flush(self) -> bool:
        """Share at once what was counted. Return whether the store works."""
        return self.ledger.exchange()

    def close(self) -> None:
        """Flush, and stop counting. Calls go on to their arms."""
        self.ledger.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReport:
    """One arm, in all processes."""

    name: str
    share: float
    """Of units, 0 to 1."""
    calls: int
    comparisons: tuple[Comparison, ...] = ()
    """With the reference, metric by metric."""
    ended: EndedArm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReport:
    """An experiment as it stands. You may look at any time, as often as you like."""

    name: str
    reference: str
    arms: tuple[ArmReport, ...]
    """The reference first."""
    problem: str | None = None
    """Why this is not everything, or None."""

    def __getitem__(self, arm: str) -> ArmReport:
        """Return the report of one arm."""
        return {one.name: one for one in self.arms}[arm]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"experiment {self.name}"]
        if self.problem is not None:
            lines.append(f"  NOTE: {self.problem}")
        for arm in self.arms:
            role = "reference" if arm.name == self.reference else f"against {self.reference}"
            lines.append(f"{arm.name} ({role}): {arm.share:.1%} of units, {arm.calls} calls")
            if (ended := arm.ended) is not None:
                at = datetime.fromtimestamp(ended.wall_ns / 1e9, UTC)
                lines.append(
                    f"  ENDED {at:%d %b %Y %H:%M} UTC after {ended.calls} calls, by {ended.by}: {ended.reason}"
                )
            lines += [_line(one) for one in arm.comparisons]
        return "\n".join(lines)


def _line(one: Comparison) -> str:
    metric = METRICS[one.metric]
    text = f"  {one.metric:<21} {one.verdict}"
    if one.change is not None and one.low is not None and one.high is not None:
        unit = "%" if metric.is_ratio else "points"
        text += f": {100 * one.change:+.2f} {unit} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
    arm, reference = (
        "nothing" if mean is None else f"{mean:.4g} {metric.unit}".rstrip() for mean in (one.arm, one.reference)
    )
    return f"{text} ({arm} against {reference}; {one.calls} calls)"


def _check(is_valid: bool, setting: str, takes: str, value: object) -> None:
    if not is_valid:
        raise ConfigurationError(f"Experiment({setting}=...) takes {takes}, got {value!r:.80}")


def _checked_name(setting: str, value: Any, example: str) -> str:
    is_name = isinstance(value, str) and value.strip() and len(value) <= _LONGEST_NAME and value.isprintable()
    _check(bool(is_name), setting, f"a text such as {example!r}, at most {_LONGEST_NAME} characters", value)
    return str(value)


def _checked_arms(arms: Any) -> dict[str, tuple[Play, ...]]:
    takes = 'at least two arms such as {"control": [Connection()], "encoding": [Connection(), RequestEncoding()]}'
    _check(isinstance(arms, Mapping) and len(arms) > 1, "arms", takes, arms)
    found: dict[str, tuple[Play, ...]] = {}
    for name, plays in arms.items():
        _checked_name("arms", name, "control")
        _check(isinstance(plays, Iterable) and not isinstance(plays, str | Mapping), "arms", takes, arms)
        try:
            found[name] = Pipeline(plays).plays
        except ConfigurationError as error:
            raise ConfigurationError(f"Experiment(arms=...): arm {name!r}: {error}") from None
    return found


# The arms of one client.


class ClientArms:
    """Chooses an arm for the calls of one client.

    `copy` copies a client: fastlane's own method, whatever a subclass makes of it. `shared`: the arms of a client with
    the same pipeline, whose arms have the same pipelines too.
    """

    def __init__(
        self, experiment: Experiment, own: Pipeline, copy: Callable[..., Any], shared: ClientArms | None = None
    ) -> None:
        self.experiment = experiment
        self.copy = copy
        self.pipelines: dict[str, Pipeline]
        if shared is not None and shared.experiment is experiment:
            self.pipelines = shared.pipelines
        else:
            self.pipelines = {arm: _pipeline(own, plays) for arm, plays in experiment.arms.items()}
        self._clients: dict[str, tuple[tuple[Any, ...], Any]] = {}
        """By arm: the options of the client when that of the arm was made, and the latter."""
        self._lock = new_lock()
        self._logged: set[str] = set()

    def choose(self, client: Any, options: Any) -> tuple[Any, ArmAssignment | None]:
        """Return the client whose plays a call goes through, and how the call is counted. Never raises.

        That is the client itself, and None, for calls that no play shapes.
        """
        if options.url not in GENERATING:
            return client, None
        try:
            return self._chosen(client, options)
        except Exception as error:  # noqa: BLE001 - an experiment must not break a call
            self._log_once("could not assign a call: it goes by the client's own plays", error)
            return client, None

    def _chosen(self, client: Any, options: Any) -> tuple[Any, ArmAssignment]:
        experiment = self.experiment
        ledger, reference = experiment.ledger, experiment.reference
        ledger.start()
        unit = draw(experiment.key, unit_id(experiment.unit_of, options))
        drawn = arm = arm_at(unit.point, experiment.shares, reference)
        why: Why | None = None
        if ledger.ended is None:
            arm, why = reference, "unknown"
        elif arm in ledger.ended:
            arm, why = reference, "ended"
        try:
            chosen = self._client_of(client, arm)
        except Exception as error:  # noqa: BLE001 - a subclass that cannot be copied, for example
            self._log_once("could not make a client for an arm: its calls go to the reference arm", error)
            arm, why = reference, "failed"
            chosen = self._client_of(client, arm)
        record = ExperimentRecord(name=experiment.name, arm=arm, unit_id_hash=unit.unit_id_hash, drawn=drawn, why=why)
        return chosen, ArmAssignment(record, ledger)

    def _client_of(self, client: Any, arm: str) -> Any:
        # The user may set these on the client between two calls.
        state = (
            client.api_key, client.base_url, client.timeout, client.max_retries, client.organization, client.project,
            given_headers(client), given_query(client), http_client_of(client),
        )  # fmt: skip
        found = self._clients.get(arm)
        if found is not None and found[0] == state:
            return found[1]
        with self._lock:
            pipeline, made = self.pipelines[arm], client
            if pipeline is not client._fastlane.pipeline:
                made = self.copy(client, only_plays=pipeline.plays)
                made._fastlane.pipeline = pipeline
            self._clients[arm] = state, made
        return made

    def _log_once(self, text: str, error: Exception) -> None:
        if text not in self._logged:
            self._logged.add(text)
            name = self.experiment.name
            _log.warning("the experiment %r %s (%s, logged once)", name, text, type(error).__name__)

    def others(self, client: Any) -> list[Any]:
        """Return the clients that were made for arms. They are closed with this one."""
        return [made for _, made in self._clients.values() if made is not client]


def _pipeline(own: Pipeline, plays: tuple[Any, ...]) -> Pipeline:
    """Return the pipeline of an arm: the client's own where it has the same plays."""
    if len(plays) == len(own.plays) and all(one is other for one, other in zip(plays, own.plays, strict=True)):
        return own
    made = Pipeline(plays, own.on_call_end, raise_play_errors=own.raise_play_errors)
    made.share_log_of(own)
    return made
