"""Which models can answer a call, and how long each of them would take."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from fastlane.knowledge.prediction._lengths import Lengths
from fastlane.knowledge.prediction._level import PASSING_S, REGIME_S
from fastlane.knowledge.prediction._speed import Speed
from fastlane.knowledge.prediction._upstream import Upstream

from ._breaker import Breaker
from ._decision import Candidate, Prediction
from ._question import Question, Way
from ._waiting import Waiting
from .catalog.scores import Score, clears

if TYPE_CHECKING:
    from .catalog.models import Catalog, CatalogModel
    from .catalog.scores import Scoreboard

_NEAR = Way()
_REGIME_NS, _PASSING_NS = -1e9 * REGIME_S, -1e9 * PASSING_S

_new = tuple.__new__


class Entrant:
    """One model of the catalog, and what is known of its upstream."""

    __slots__ = (
        "asked_at", "breaker", "calls", "fame", "fame_at", "limit", "looked_at", "model", "name", "origin",
        "place", "speed", "upstream", "waiting",
    )  # fmt: skip

    def __init__(self, model: CatalogModel, upstream: Upstream, speed: Speed, breaker: Breaker, place: Breaker) -> None:
        self.model = model
        self.name = model.name
        self.limit = model.context_tokens
        self.upstream = upstream
        self.origin = upstream.origin
        self.speed = speed
        self.breaker = breaker
        self.place = place
        """Of the origin: opens where no connection can be had."""
        self.waiting = Waiting()
        self.calls = 0
        self.fame = 0.0
        """How many of the decisions before the one `fame_at` it was the fastest for; those long ago count for less."""
        self.fame_at = 0
        self.asked_at = 0
        """The number of the decision that it was chosen by the last time."""

        self.looked_at = False
        """Whether a call has gone there that looks back at it, and nothing was noted of it since."""

    @property
    def well(self) -> bool:
        """Whether calls go there without a thought."""
        return self.breaker.until_ns is None and self.place.until_ns is None

    def rests_s(self, now_ns: int) -> float:
        """Seconds for which it is left alone, because it failed; 0 where it is not."""
        if self.breaker.until_ns is None and self.place.until_ns is None:
            return 0.0
        return max(self.breaker.rests_s(now_ns), self.place.rests_s(now_ns))

    def probed(self, now_ns: int) -> None:
        """Note that a call is sent there: breakers that are not closed admit no other until it has returned."""
        self.breaker.probed(now_ns)
        self.place.probed(now_ns)

    def returned(self) -> None:
        """Let the next call probe: the one that was to do so has an answer, or was not sent."""
        self.breaker.returned()
        self.place.returned()


Ranked = tuple[float, int, Candidate, Entrant]
"""Predicted seconds, the place in the catalog, and what they are of: in this order, the fastest is the least."""


def unsuited(model: CatalogModel, question: Question, catalog: Catalog, scores: Scoreboard) -> str | None:
    """Why a model cannot answer any call of this kind, in a few words; None where it can."""
    if question.endpoint not in model.endpoints:
        return f'its endpoints in the catalog lack "{question.endpoint}"'
    if question.needs - model.capabilities:
        lacking = ", ".join(f'"{one}"' for one in sorted(question.needs - model.capabilities))
        return f"its capabilities in the catalog lack {lacking}"
    task = catalog.tasks.get(question.task) if question.task is not None else None
    bar, rate = question.min_quality, question.min_pass_rate
    if task is not None:
        bar = task.min_quality if bar is None else bar
        rate = task.min_pass_rate if rate is None else rate
    measured = Score()
    if question.task is not None:
        measured = model.scores.get(question.task, measured).plus(scores.of(question.task, model.name))
    return clears(model, min_quality=bar, min_pass_rate=rate, measured=measured)


class Field(NamedTuple):
    """The models that are suited, for one call."""

    ranked: list[Ranked]
    """Those that may be asked, not in order yet."""
    resting: list[Ranked]
    """Those that are left alone for now, with the seconds for which they are."""
    rejected: list[Candidate]


def judged(entrants: Sequence[Entrant], question: Question, lengths: Lengths, deviations: float, now_ns: int) -> Field:
    """Seconds that a call would take at each, part by part; `deviations` of the standard normal say which quantile.

    Of the parts the medians are given. Of the whole, it is the quantile of the sum of first token and decoding, each
    log-normal by the noise that was learned (and decoding by that of the answer's length), where the sum is taken for
    log-normal with the sum of their means and of their variances: L. F. Fenton, "The Sum of Log-Normal Probability
    Distributions in Scatter Transmission Systems", IRE Transactions on Communications Systems 8 (1960).
    """
    ways, cached, unfit = question.ways, question.cached_tokens, question.unfit
    size, most, form = question.input_tokens, question.max_output_tokens, question.output_tokens
    usual = lengths.of(question.task)
    own, shared = usual.own, usual.shared.value
    ranked: list[Ranked] = []
    resting: list[Ranked] = []
    rejected: list[Candidate] = []
    connect = upload = 0.0
    at = -1
    # Once for each candidate of each call: what stands in one line here was measured.
    for entrant in entrants:
        at += 1
        upstream, speed = entrant.upstream, entrant.speed
        (
            first_ns, base_s, token_s, regime, passing, first_mean, first_square,
            pace_ns, taken_s, pace_regime, pace_passing, decode_square,
        ) = speed.outlook  # fmt: skip
        uncached = size
        if cached and (saved := cached.get(upstream)):
            uncached = size - saved if saved < size else 0.0
        silent = now_ns - first_ns
        if silent > 0:
            left, left_passing = exp(silent / _REGIME_NS), exp(silent / _PASSING_NS)
            first = (base_s + token_s * uncached) * exp(regime * left + passing * left_passing)
        else:
            left = left_passing = 1.0
            first = (base_s + token_s * uncached) * exp(regime + passing)
        if entrant.waiting.first:
            first *= entrant.waiting.slowness(speed.first.noise, now_ns)
        if pace_ns != first_ns:
            silent = now_ns - pace_ns
            left, left_passing = (exp(silent / _REGIME_NS), exp(silent / _PASSING_NS)) if silent > 0 else (1.0, 1.0)
        if form is not None:
            tokens = form * entrant.model.output_factor
        elif (mine := own.get(upstream)) is not None:
            tokens = mine.value
        else:
            tokens = shared * entrant.model.output_factor
        if most is not None and tokens > most:
            tokens = most
        decode = tokens * taken_s * exp(-pace_regime * left - pace_passing * left_passing)
        mean = first * first_mean + decode
        square = mean * mean
        variance = first * first * first_square + decode * decode * decode_square
        if deviations:
            spread_square = log(1.0 + variance / square)
            total = mean * exp(deviations * sqrt(spread_square) - 0.5 * spread_square)
        else:
            total = square / sqrt(square + variance)
        if ways:
            way = ways.get(entrant.origin, _NEAR)
            connect, upload = way.connect_s, way.upload_s
            total += connect + upload
        if unfit and entrant.name in unfit:
            rejected.append(rejection(entrant, unfit[entrant.name]))
            continue
        if entrant.limit is not None and size + tokens > entrant.limit:
            rejected.append(rejection(entrant, f"{entrant.limit:,} tokens of context are too few"))
            continue
        candidate = _blank(Candidate)
        _set_name(candidate, entrant.name)
        _set_upstream(candidate, upstream)
        _set_prediction(candidate, _new(Prediction, (connect, upload, first, decode, total, tokens)))
        _set_why_not(candidate, None)
        if entrant.breaker.until_ns is None and entrant.place.until_ns is None:
            ranked.append((total, at, candidate, entrant))
        elif (rests := entrant.rests_s(now_ns)) > 0.0:
            resting.append((rests, at, candidate, entrant))
        else:
            ranked.append((total, at, candidate, entrant))
    return Field(ranked, resting, rejected)


def rejection(entrant: Entrant, why: str) -> Candidate:
    """One that is not asked, and why."""
    return Candidate(name=entrant.name, upstream=entrant.upstream, why_not=why)


# A frozen dataclass sets each field by way of object.__setattr__; its slots' own setters take a third of that.
_blank = object.__new__
_set_name, _set_upstream, _set_prediction, _set_why_not = (
    vars(Candidate)[name].__set__ for name in ("name", "upstream", "prediction", "why_not")
)
