"""Which models can answer a call, and how long each of them would take."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from ..catalog._scores import Score, clears
from ..prediction._lengths import Lengths
from ..prediction._level import PASSING_S, REGIME_S
from ..prediction._speed import Speed
from ..prediction._upstream import Upstream
from ._breaker import Breaker
from ._decision import Candidate, Prediction
from ._question import Question, Way
from ._waiting import Waiting

if TYPE_CHECKING:
    from ..catalog._models import Catalog, CatalogModel
    from ..catalog._scores import Scoreboard

_NEAR = Way()
_REGIME_NS, _PASSING_NS = -1e9 * REGIME_S, -1e9 * PASSING_S
# Variance of the logarithm of an answer's tokens: of those of one task, two of three lie within a third of the usual.
_LENGTHS_SQUARE = exp(0.3**2)

_new = tuple.__new__


class Entrant:
    """One model of the catalog, and what is known of its upstream."""

    __slots__ = ("breaker", "calls", "model", "name", "place", "speed", "upstream", "waiting")

    def __init__(self, model: CatalogModel, upstream: Upstream, speed: Speed, breaker: Breaker, place: Breaker) -> None:
        self.model = model
        self.name = model.name
        self.upstream = upstream
        self.speed = speed
        self.breaker = breaker
        self.place = place
        """Of the origin: opens where no connection can be had."""
        self.waiting = Waiting()
        self.calls = 0

    def rests_s(self, now_ns: int) -> float:
        """Seconds for which it is left alone, because it failed; 0 where it is not."""
        if self.breaker.closed and self.place.closed:
            return 0.0
        return max(self.breaker.rests_s(now_ns), self.place.rests_s(now_ns))


Ranked = tuple[float, int, Candidate, Entrant]
"""Predicted seconds, the place in the catalog, and what they are of: in this order, the fastest is the least."""


def unsuited(model: CatalogModel, question: Question, catalog: Catalog, scores: Scoreboard) -> str | None:
    """Why a model cannot answer any call of this kind, in a few words; None where it can."""
    if question.endpoint not in model.endpoints:
        return f"has no {question.endpoint}"
    if question.needs - model.abilities:
        return f"cannot do {', '.join(sorted(question.needs - model.abilities))}"
    task = catalog.tasks.get(question.task) if question.task is not None else None
    bar, rate = question.quality_bar, question.pass_rate
    if task is not None:
        bar = task.quality_bar if bar is None else bar
        rate = task.pass_rate if rate is None else rate
    measured = Score()
    if question.task is not None:
        measured = model.scores.get(question.task, measured).plus(scores.of(question.task, model.name))
    return clears(model, quality_bar=bar, pass_rate=rate, measured=measured)


def predictions(
    entrants: Iterable[Entrant], question: Question, lengths: Lengths, deviations: float, now_ns: int
) -> list[Prediction]:
    """Seconds that a call would take at each, part by part; `deviations` of the standard normal say which quantile.

    Of the parts the medians are given. Of the whole, it is the quantile of the sum of first token and decoding, each
    log-normal by the noise that was learned (and decoding by that of the answer's length), where the sum is taken for
    log-normal with the sum of their means and of their variances: L. F. Fenton, "The Sum of Log-Normal Probability
    Distributions in Scatter Transmission Systems", IRE Transactions on Communications Systems 8 (1960).
    """
    ways, cached = question.ways, question.cached_tokens
    size, most, form = question.input_tokens, question.most_output_tokens, question.output_tokens
    usual = lengths.of(question.task)
    made: list[Prediction] = []
    # Once for each candidate of each call: what stands in one line here was measured.
    for entrant in entrants:
        upstream = entrant.upstream
        (
            first_ns, base_s, token_s, usual_first, regime, passing, first_square,
            pace_ns, rate, usual_pace, pace_regime, pace_passing, pace_square,
        ) = entrant.speed.outlook  # fmt: skip
        uncached = size - cached.get(upstream, 0.0) if cached else size
        uncached = max(uncached, 0.0)
        silent = now_ns - first_ns
        if silent > 0:
            usual_first += regime * exp(silent / _REGIME_NS) + passing * exp(silent / _PASSING_NS)
        else:
            usual_first += regime + passing
        first = (base_s + token_s * uncached) * exp(usual_first)
        if entrant.waiting.first:
            first *= entrant.waiting.slowness(entrant.speed.first.noise, now_ns)
        silent = now_ns - pace_ns
        if silent > 0:
            usual_pace += pace_regime * exp(silent / _REGIME_NS) + pace_passing * exp(silent / _PASSING_NS)
        else:
            usual_pace += pace_regime + pace_passing
        factor = entrant.model.output_factor
        tokens = form * factor if form is not None else usual.expected(upstream, factor)
        if most is not None and tokens > most:
            tokens = most
        decode = tokens / (rate * exp(usual_pace))
        mean = first * sqrt(first_square) + decode
        variance = first * first * first_square * (first_square - 1.0)
        variance += decode * decode * (pace_square * _LENGTHS_SQUARE - 1.0)
        spread_square = log(1.0 + variance / (mean * mean))
        total = mean * exp(deviations * sqrt(spread_square) - 0.5 * spread_square)
        if ways:
            way = ways.get(upstream[1], _NEAR)
            connect, upload = way.connect_s, way.upload_s
            made.append(_new(Prediction, (connect, upload, first, decode, connect + upload + total, tokens)))
        else:
            made.append(_new(Prediction, (0.0, 0.0, first, decode, total, tokens)))
    return made
