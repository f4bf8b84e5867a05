"""Which model of the catalog a call goes to: what is known of each, and the decisions that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import exp, inf
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from fastlane._fork import new_lock
from fastlane.knowledge.call_sizes import CallSizes, RunningMean
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.knowledge.speed import Speed, deviations_of
from fastlane.knowledge.table import Table
from fastlane.protocol.header_times import jitter_s

from .catalog.scores import Score, clears

if TYPE_CHECKING:
    from .catalog.models import Catalog, CatalogModel

# Models are explored that may take this many times as long as the fastest at most.
_NEAR = 1.4
_TIMEOUT_QUANTILE, _TIMEOUT_FACTOR, _LEAST_TIMEOUT_S = 0.995, 1.5, 1.0
# Answers that the catalog's length of a task, or the other models' answers, count as.
_PRIOR_ANSWERS = 3.0
_MAX_KINDS = 256
# One first token of 50 takes more than so many standard deviations, if nothing has changed.
_UNLIKELY = 2.05
_LEAST_SLOWNESS = 1.5
_FAILURES_TO_OPEN = 2
_FORGOTTEN_NS = 60_000_000_000
_LONGEST_PAUSE_S = 60.0
_GROWTH, _MOST_PAUSES = 1.5, 12
_JITTER = 0.2
_PROBE_NS = 10_000_000_000

BreakerState = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteQuery:
    """One call, as far as the choice of its model depends on it."""

    task: str | None = None
    kind: str | None = None
    """By what the lengths of answers are learned: the task, or the name of the answer's schema."""
    min_quality: float | None = None
    """In the units of the catalog's index."""
    min_pass_rate: float | None = None
    """The least share of passed evaluations of the task, 0 to 1."""
    quantile: float = 0.5
    """Which quantile of the predicted time counts."""
    endpoint: str = "/chat/completions"
    needs: frozenset[str] = frozenset()
    """Capabilities of the catalog that the call needs."""
    body_bytes: int = 0
    """Of the request as JSON."""
    input_tokens: float = 0.0
    """Tokens of the prompt, estimated alike for all models."""
    max_output_tokens: int | None = None
    """The caller's own limit."""
    cached_tokens: Mapping[str, float] = field(default_factory=dict)
    """Tokens of the prompt, at most all, that a model is expected to have in its cache, by its name; 0 if not named."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Names of models that cannot answer this call, and why, beyond what the catalog says."""
    blocks: tuple[int, ...] = ()
    """Of the prompt: see `fastlane.knowledge.prefixes`."""

    def uncached_tokens(self, name: str) -> float:
        """Return the tokens of the prompt that a model has to read."""
        return self.input_tokens - self.cached_tokens.get(name, 0.0)


class Candidate(NamedTuple):
    """One model of the catalog, as the decision saw it. The least of several is the fastest."""

    total_s: float
    """Seconds that the call is expected to take at the quantile of its route; infinite where it cannot go
    there."""
    number: int
    """The position in the catalog."""
    name: str
    """As the catalog names it."""
    first_token_s: float = 0.0
    """From the request to the first token, as the median."""
    decode_s: float = 0.0
    """From the first token to the last, as the median."""
    output_tokens: float = 0.0
    why_not: str | None = None
    """Why it was not eligible; None if it was."""


Reason = Literal["fastest", "only", "explored", "probed"]
"""Why a model was chosen.

- fastest: the lowest predicted time of all that are good enough
- only: no other was eligible
- explored: to see whether it is as fast as it may be by now
- probed: it had failed, and it is time to see whether it is back
"""


class Decision(NamedTuple):
    """What was decided: `ranked[0]` is the choice, the others are what to fall back on, in order."""

    ranked: tuple[Candidate, ...]
    """Those that are eligible; empty where none is."""
    rejected: tuple[Candidate, ...]
    resting: tuple[Candidate, ...]
    """Those that rest after failures, while others do not: better than an error where all others fail."""
    reason: Reason | None
    """None if nothing is eligible."""


class Breaker:
    """A circuit breaker.

    The second failure in a row within a minute opens it, for a second at first, and for half as long again after every
    probe that failed, up to a minute; each pause is drawn from a range of 20 %, so that many clients do not come back
    at once. A provider that asks for a rest gets it at once, up to a minute. While it is half-open, one call at a time
    probes, for ten seconds at most.
    """

    __slots__ = ("_failed_ns", "_failures", "_pauses", "_probe_until_ns", "_random", "until_ns")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = self._pauses = self._failed_ns = self._probe_until_ns = 0
        self.until_ns: int | None = None
        """Until when it is open; None if it is closed."""

    def state(self, now_ns: int) -> BreakerState:
        """Return the state; it is half-open while a call may probe, and none does."""
        if self.until_ns is None:
            return "closed"
        return "open" if self.rest_s(now_ns) > 0.0 else "half-open"

    def rest_s(self, now_ns: int) -> float:
        """Return the seconds until a call is admitted; 0 where one is now."""
        if self.until_ns is None:
            return 0.0
        return max(0, max(self.until_ns, self._probe_until_ns) - now_ns) * 1e-9

    def begin_probe(self, now_ns: int) -> None:
        """Admit no other call until this one has ended."""
        if self.until_ns is not None:
            self._probe_until_ns = now_ns + _PROBE_NS

    def end_probe(self) -> None:
        """Admit the next call: the probe was not sent."""
        self._probe_until_ns = 0

    def failed(self, rest_s: float | None, now_ns: int) -> None:
        """Note a failure. `rest_s`: for how long the provider asks to be left alone."""
        until_ns = self.until_ns or 0
        if now_ns < until_ns and rest_s is None:
            return  # it was on its way before the breaker opened
        if self.until_ns is None and now_ns - self._failed_ns > _FORGOTTEN_NS:
            self._failures = self._pauses = 0
        self._failures += 1
        self._failed_ns = now_ns
        self._probe_until_ns = 0
        if self.until_ns is None and rest_s is None and self._failures < _FAILURES_TO_OPEN:
            return
        pause_s = min(_LONGEST_PAUSE_S, _GROWTH**self._pauses) * self._random.uniform(1.0 - _JITTER, 1.0 + _JITTER)
        self._pauses = min(_MOST_PAUSES, self._pauses + 1)
        rest_s = min(_LONGEST_PAUSE_S, rest_s or 0.0)
        rest_s += jitter_s(rest_s, self._random.random)
        self.until_ns = max(until_ns, now_ns + round(max(pause_s, rest_s) * 1e9))

    def answered(self, now_ns: int) -> None:
        """Note an answer: it closes, unless the answer was on its way before the breaker opened."""
        if self.until_ns is None or now_ns >= self.until_ns:
            self._failures = 0
            self.until_ns = None


class KindSizes(CallSizes):
    """The sizes of one kind of calls, and the lengths of the answers of each upstream."""

    __slots__ = ("own",)

    def __init__(self, output: RunningMean | None) -> None:
        super().__init__(output)
        self.own: dict[Upstream, RunningMean] = {}

    def learn_output(self, upstream: Upstream, factor: float, tokens: float) -> None:
        """Learn from one answer. `factor`: how many times the tokens of the others an upstream's answers have."""
        own = self.own.get(upstream)
        if own is None:
            expected = RunningMean(factor * self.output.value, min(_PRIOR_ANSWERS, self.output.count))
            own = self.own[upstream] = expected
        own.note(tokens)
        self.output.note(tokens / factor)


class ModelState:
    """One model of the catalog, and what is known of it."""

    __slots__ = (
        "breaker", "chosen_at", "chosen_count", "context_tokens", "model", "name", "number", "output_factor", "speed",
        "upstream", "waiting",
    )  # fmt: skip

    def __init__(
        self, number: int, model: CatalogModel, upstream: Upstream, speed: Speed, breaker: Breaker, waiting: _Waiting
    ) -> None:
        """`number`: the position in the catalog.

        Models at the same upstream share its speed, its breaker and the calls that wait there.
        """
        self.number = number
        self.model = model
        self.name = model.name
        self.output_factor = model.output_factor
        self.context_tokens = inf if model.context_tokens is None else model.context_tokens
        self.upstream = upstream
        self.speed = speed
        self.breaker = breaker
        self.waiting = waiting
        self.chosen_at = 0
        """The number of the last decision for it."""
        self.chosen_count = 0


_Waiting: TypeAlias = dict[int, tuple[int, float]]
"""Calls that wait for their first token and that no later one has overtaken, by number: when each began, in monotonic
nanoseconds, and the seconds that its first token was expected to take. The oldest is the first."""

_numbers = count(1)


class Router:
    """Learns from every attempt, and decides. Thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        exploration: float = 0.02,
        random: Random | None = None,
    ) -> None:
        """`exploration` is the share of calls that may go to a model which is not predicted to be the fastest."""
        self._catalog = catalog
        self._exploration = exploration
        self._credit = 0.0
        self._decisions = 0
        # Two threads that both found a breaker half-open would both probe.
        self._lock = new_lock()
        self._sizes: Table[str | None, KindSizes] = Table("sizes of calls", max_entries=1_000)
        random = random or Random()
        known: dict[Upstream, tuple[Upstream, Speed, Breaker, _Waiting]] = {}
        self.states: dict[str, ModelState] = {}
        """By the name of the model."""
        for number, model in enumerate(catalog.models):
            upstream = Upstream(model.model, catalog.origin_of(model))
            if upstream not in known:
                known[upstream] = upstream, Speed(model.first_token_s, model.tokens_per_s), Breaker(random), {}
            self.states[model.name] = ModelState(number, model, *known[upstream])
        self._by_upstream = {state.upstream: state for state in reversed(self.states.values())}
        self._suited: Table[Any, tuple[list[ModelState], list[Candidate]]] = Table("suited", max_entries=_MAX_KINDS)

    # Decisions

    def decide(self, query: RouteQuery, now_ns: int) -> Decision:
        """Rank the models that can answer a call, or those that rest after failures if all of them do."""
        with self._lock:
            return self._decide(query, now_ns)

    def _decide(self, query: RouteQuery, now_ns: int) -> Decision:
        self._decisions += 1
        suited, unsuited = self._suited_for(query)
        sizes = self._sizes.get(query.kind) or self.sizes(query.kind)
        ranked: list[Candidate] = []
        resting: list[tuple[float, Candidate]] = []
        rejected = list(unsuited)
        unfit, cached, deviations = query.unfit, query.cached_tokens, deviations_of(query.quantile)
        input_tokens, limit, usual_tokens = query.input_tokens, query.max_output_tokens, sizes.output.value
        for state in suited:
            name, breaker = state.name, state.breaker
            why_not = unfit.get(name) if unfit else None
            own = sizes.own.get(state.upstream)
            tokens = usual_tokens * state.output_factor if own is None else own.value
            if limit is not None and tokens > limit:
                tokens = limit
            if why_not is None and input_tokens + tokens > state.context_tokens:
                why_not = f"{state.context_tokens:,} tokens of context are too few"
            if why_not is not None:
                rejected.append(Candidate(inf, state.number, name, why_not=why_not))
                continue
            uncached = input_tokens - cached.get(name, 0.0) if cached else input_tokens
            slowness = _slowness(state, now_ns) if state.waiting else 1.0
            first_s, decode_s, total_s = state.speed.predict(uncached, tokens, deviations, now_ns, slowness)
            candidate = _new(Candidate, (total_s, state.number, name, first_s, decode_s, tokens, None))
            if breaker.until_ns is None or not (rest_s := breaker.rest_s(now_ns)):
                ranked.append(candidate)
            else:
                resting.append((rest_s, candidate))
        ranked.sort()
        resting.sort()
        left = tuple([candidate for _, candidate in resting]) if ranked else ()
        reason: Reason | None = "fastest" if len(ranked) > 1 else "only"
        if not ranked:
            # An error for sure would be no better than one more failure.
            ranked, reason = [candidate for _, candidate in resting], None
        else:
            rejected += [
                candidate._replace(why_not=f"failed; left alone for another {rest_s:.1f} s")
                for rest_s, candidate in resting
            ]
            if explored := self._explored(ranked, query):
                ranked.insert(0, ranked.pop(explored))
                reason = "explored"
        if ranked:
            chosen = self.states[ranked[0].name]
            chosen.chosen_count += 1
            chosen.chosen_at = self._decisions
            if chosen.breaker.until_ns is not None:
                chosen.breaker.begin_probe(now_ns)
                reason = "probed"
        return Decision(tuple(ranked), tuple(rejected), left, reason)

    def _suited_for(self, query: RouteQuery) -> tuple[list[ModelState], list[Candidate]]:
        """Return the models that can answer calls of this kind, and why the others cannot. Remembered by kind."""
        kind = query.endpoint, query.needs, query.task, query.min_quality, query.min_pass_rate
        known = self._suited.get(kind)
        if known is None:
            known = [], []
            for state in self.states.values():
                why_not = self._why_unsuited(state.model, query)
                if why_not is None:
                    known[0].append(state)
                else:
                    known[1].append(Candidate(inf, state.number, state.name, why_not=why_not))
            self._suited.put(kind, known)
        return known

    def _why_unsuited(self, model: CatalogModel, query: RouteQuery) -> str | None:
        if query.endpoint not in model.endpoints:
            return f'its endpoints in the catalog lack "{query.endpoint}"'
        if lacking := query.needs - model.capabilities:
            listed = ", ".join([f'"{one}"' for one in sorted(lacking)])
            return f"its capabilities in the catalog lack {listed}"
        measured = Score() if query.task is None else model.scores.get(query.task, Score())
        return clears(model, min_quality=query.min_quality, min_pass_rate=query.min_pass_rate, measured=measured)

    def _explored(self, ranked: list[Candidate], query: RouteQuery) -> int:
        """Return the index of the model to try instead of the fastest; 0 for none.

        It is the one that was not chosen for longest, of those that are about as fast, or would be at their usual
        speed: what was slow, and is not asked any more, would never be found to have recovered.
        """
        if len(ranked) < 2:
            return 0
        self._credit = min(1.0, self._credit + self._exploration)
        if self._credit < 1.0 - 1e-9:
            return 0
        near_s = _NEAR * ranked[0].total_s
        near = [index for index in range(1, len(ranked)) if self._at_best(ranked[index], query) <= near_s]
        if not near:
            return 0
        self._credit = 0.0
        return min(near, key=lambda index: self.states[ranked[index].name].chosen_at)

    def _at_best(self, candidate: Candidate, query: RouteQuery) -> float:
        """Return the seconds that a call takes at the predicted or at the usual speed of a model, the lower one."""
        speed = self.states[candidate.name].speed
        usual_s = speed.base_s + speed.read_token_s * query.uncached_tokens(candidate.name)
        usual_s += candidate.output_tokens * speed.output_token_s
        return candidate.total_s - max(0.0, candidate.first_token_s + candidate.decode_s - usual_s)

    # What is learned

    def sizes(self, kind: str | None) -> KindSizes:
        """Return the sizes of one kind of calls."""

        def make() -> KindSizes:
            task = self._catalog.tasks.get(kind) if kind is not None else None
            said = task.output_tokens if task is not None else None
            return KindSizes(None if said is None else RunningMean(said, _PRIOR_ANSWERS))

        return self._sizes.fetch(kind, make)

    def began(self, model: CatalogModel, uncached_tokens: float, now_ns: int) -> Callable[[bool], None]:
        """Note that a call waits for its first token.

        Returns what is to be called with True once it is there, or with False once there will be none. It takes no
        lock, and may be called again.
        """
        state = self.states[model.name]
        number = next(_numbers)
        state.waiting[number] = now_ns, state.speed.first_token(uncached_tokens, now_ns)
        return partial(_ended, state.waiting, number)

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt. What the catalog does not have is left out."""
        # A model at the client's own base URL has no origin in the catalog.
        found = self._by_upstream.get(Upstream(sighting.model, sighting.origin))
        state = found or self._by_upstream.get(Upstream(sighting.model, ""))
        if state is None:
            return
        with self._lock:
            before_ns = state.breaker.until_ns
            if sighting.failure is not None:
                if sighting.failure != "too_long":
                    state.breaker.failed(sighting.rest_s, now_ns)
            elif sighting.late_s is None:
                state.breaker.answered(now_ns)
            # How long it fails says nothing of how fast it will be.
            if before_ns is None or sighting.failure is None:
                state.speed.note(sighting, now_ns)
            tokens = sighting.output_tokens
            if tokens is not None and tokens > 0 and sighting.failure is None and sighting.late_s is None:
                self.sizes(sighting.task).learn_output(state.upstream, state.output_factor, tokens)
            for task in {None, sighting.task}:
                self.sizes(task).learn(body_bytes=sighting.body_bytes, input_tokens=sighting.input_tokens)

    def first_token_timeout(self, model: CatalogModel, uncached_tokens: float, now_ns: int) -> float:
        """Return the seconds without a first token after which a model is given up for the next one; at least 1.

        1.5 times the quantile 0.995: one first token of 200 takes longer than that, if nothing has changed.
        """
        speed = self.states[model.name].speed
        first_token_s = speed.first_token(uncached_tokens, now_ns, _TIMEOUT_QUANTILE)
        return max(_LEAST_TIMEOUT_S, _TIMEOUT_FACTOR * first_token_s)

    def admit(self, model: CatalogModel, now_ns: int) -> bool:
        """Return whether a call may be sent to a model now; a half-open breaker admits one probe at a time."""
        breaker = self.states[model.name].breaker
        with self._lock:
            if breaker.rest_s(now_ns) > 0.0:
                return False
            breaker.begin_probe(now_ns)
            return True

    def withdraw(self, model: CatalogModel) -> None:
        """Let another call probe: the admitted one has ended."""
        with self._lock:
            self.states[model.name].breaker.end_probe()

    def report(self, now_ns: int) -> list[dict[str, Any]]:
        """Return what is known of each model, for people: one row each."""
        chosen = sum(state.chosen_count for state in self.states.values())
        return [
            {
                "name": state.name,
                "model": state.upstream.model,
                "origin": state.upstream.origin,
                "seen": state.speed.first.count,
                "first_token_s_at_1000": state.speed.first_token(1_000, now_ns),
                "first_token_s_at_10000": state.speed.first_token(10_000, now_ns),
                "tokens_per_s": state.speed.rate(now_ns),
                "breaker": state.breaker.state(now_ns),
                "share_of_calls": state.chosen_count / chosen if chosen else 0.0,
            }
            for state in self.states.values()
        ]


# Makes a NamedTuple in half the time that its class takes.
_new = tuple.__new__


def _ended(waiting: _Waiting, number: int, has_token: bool) -> None:
    if waiting.pop(number, None) is not None and has_token:
        # A slow call that others overtake says nothing of its upstream.
        for other in list(waiting):
            if other < number:
                waiting.pop(other, None)


def _slowness(state: ModelState, now_ns: int) -> float:
    """Return how many times as long as expected the oldest waiting call has waited; 1 where that may be chance.

    A model becomes slow long before a timeout ends an attempt.
    """
    for began_ns, expected_s in list(state.waiting.values())[:1]:
        times = (now_ns - began_ns) * 1e-9 / expected_s
        if times > exp(_UNLIKELY * state.speed.first.deviation):
            return max(_LEAST_SLOWNESS, times)
    return 1.0
