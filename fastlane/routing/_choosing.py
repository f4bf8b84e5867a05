"""Which models can answer a call, and how long each would take: the ranking, without any memory of its own."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING

from ..catalog._scores import Score, clears
from ..prediction._lengths import Lengths
from ..prediction._speed import Speed
from ..prediction._upstream import Upstream
from ._breaker import Breaker
from ._decision import Prediction
from ._question import Question, Way

if TYPE_CHECKING:
    from ..catalog._models import Catalog, CatalogModel
    from ..catalog._scores import Scoreboard

_NEAR = Way()


class Entrant:
    """One model of the catalog, and what is known of its upstream."""

    __slots__ = ("breaker", "calls", "model", "name", "place", "speed", "upstream")

    def __init__(self, model: CatalogModel, upstream: Upstream, speed: Speed, breaker: Breaker, place: Breaker) -> None:
        self.model = model
        self.name = model.name
        self.upstream = upstream
        self.speed = speed
        self.breaker = breaker
        self.place = place
        """Of the origin: opens where no connection can be had."""
        self.calls = 0


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


def predict(entrant: Entrant, question: Question, lengths: Lengths, deviations: float, now_ns: int) -> Prediction:
    """Seconds that a call would take, part by part; `deviations` of the standard normal say which quantile of the sum.

    The parts' medians are given as they are. The sum of first token and decoding is taken for log-normal with the sum
    of their means and of their variances (Fenton's and Wilkinson's method: L. F. Fenton, "The Sum of Log-Normal
    Probability Distributions in Scatter Transmission Systems", IRE Transactions on Communications Systems 8, 1960).
    """
    way = question.ways.get(entrant.upstream.origin, _NEAR)
    uncached = question.input_tokens - question.cached_tokens.get(entrant.upstream, 0.0)
    factor = entrant.model.output_factor
    if question.output_tokens is not None:
        tokens = question.output_tokens * factor
    else:
        tokens = lengths.expected(question.task, entrant.upstream, factor)
    if question.most_output_tokens is not None:
        tokens = min(tokens, question.most_output_tokens)
    speed = entrant.speed
    first = speed.first_token(uncached if uncached > 0.0 else 0.0, now_ns)
    decode = tokens / speed.rate(now_ns)
    first_noise, pace_noise = speed.first.noise, speed.pace.noise + 0.3
    first_square, pace_square = exp(first_noise * first_noise), exp(pace_noise * pace_noise)
    first_mean, decode_mean = first * sqrt(first_square), decode
    mean = first_mean + decode_mean
    variance = first_mean * first_mean * (first_square - 1.0) + decode_mean * decode_mean * (pace_square - 1.0)
    spread_square = log(1.0 + variance / (mean * mean))
    total = mean * exp(deviations * sqrt(spread_square) - 0.5 * spread_square)
    return Prediction(way.connect_s, way.upload_s, first, decode, way.connect_s + way.upload_s + total, tokens)
