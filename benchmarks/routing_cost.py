"""What a decision of `Routing` costs: CPU microseconds with 20 candidates, and as a share of a call.

A catalog of 20 models at origins of their own, of each of which answers have been noted; then questions of changing
sizes and tasks, one a second of simulated time, so that nothing that decays with silence is known already. Medians of
batches of this thread's CPU time: of the decision alone with plain questions (`decide_cpu_us`), with a cache for each
candidate (`decide_full_cpu_us`) and with one breaker open (`decide_open_cpu_us`), of which the reach has to
hold for the worst (`decide_worst_cpu_us`); and of the whole plan of the play,
`Routing(...).plan(call)`, for a prepared call of some 4,000 bytes, the question put together and decided
(`plan_cpu_us`), a new call each time. Inside: all CPU of the thread between the question (or the call) and
the decision (or the plan). Outside: what the ways of a routed call cost after the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from random import Random

from benchmarks._paired import median
from benchmarks._report import Figure, Report
from fastlane import Routing
from fastlane._clock import thread_cpu_ns
from fastlane.engine.call import Call
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.routing.catalog.models import Catalog, CatalogModel
from fastlane.plays.routing.router import RouteQuery, Router
from fastlane.providers import facts_named

_MODELS = 20
_BATCH = 100
_S = 1_000_000_000


def _catalog() -> Catalog:
    random = Random(0)
    models = tuple(
        CatalogModel(
            name=f"model-{index}",
            base_url=f"https://host-{index}.example.com/v1",
            quality=40.0 + index,
            context_tokens=200_000,
            first_token_s=((1_000, random.uniform(0.2, 2.0)), (10_000, random.uniform(2.0, 4.0))),
            tokens_per_s=random.uniform(50, 500),
        )
        for index in range(_MODELS)
    )
    return Catalog(models=models)


def _router() -> Router:
    random = Random(0)
    router = Router(_catalog())
    for number in range(30 * _MODELS):
        router.note(_sighting(number, random), number * _S)
    return router


def _sighting(number: int, random: Random) -> Sighting:
    index = number % _MODELS
    return Sighting(
        model=f"model-{index}",
        origin=f"https://host-{index}.example.com:443",
        task=f"task-{number % 3}",
        uncached_tokens=random.uniform(100, 20_000),
        first_token_s=random.lognormvariate(0, 0.4),
        output_tokens=300,
        decode_s=random.lognormvariate(1, 0.3),
    )


def _questions(*, full: bool) -> list[RouteQuery]:
    random = Random(1)
    cached = {f"model-{index}": 500.0 for index in range(_MODELS)}
    return [
        RouteQuery(
            task=f"task-{number % 3}",
            min_quality=10.0,
            input_tokens=random.uniform(600, 50_000),
            cached_tokens=cached if full else {},
        )
        for number in range(_BATCH)
    ]


def _decide_us(router: Router, questions: Sequence[RouteQuery], batches: int) -> float:
    taken = []
    for batch in range(batches):
        first = 30 * _MODELS + batch * _BATCH
        started = thread_cpu_ns()
        for number, question in enumerate(questions, start=first):
            router.decide(question, number * _S)
        taken.append((thread_cpu_ns() - started) / _BATCH / 1e3)
    return median(taken).value


def _plan_us(batches: int) -> float:
    """The whole plan of the play."""
    play, facts, numbers = Routing(_catalog()), facts_named("openai"), count()
    asked = [{"role": "user" if at % 2 else "assistant", "content": f"{at} " + "as they say " * 38} for at in range(8)]
    body = {"model": "fastlane/auto", "messages": asked, "stream": True}
    taken = []
    for _ in range(batches):
        calls = [
            Call(
                call_id=str(number := next(numbers)),
                endpoint="/chat/completions",
                origin="https://own.example.com:443",
                body=body,
                stream=True,
                facts=facts,
                issued_ns=(1 + number) * _S,
            )
            for _ in range(_BATCH)
        ]
        started = thread_cpu_ns()
        for call in calls:
            _, decision = play.decide(call, play.route_of(call), facts=facts)
        taken.append((thread_cpu_ns() - started) / _BATCH / 1e3)
        if len(decision.ranked) != _MODELS:
            raise RuntimeError("the plan does not rank all models")
    return median(taken).value


def measure(quick: bool) -> Report:
    """Decide and plan, in batches."""
    batches = 30 if quick else 200
    plain, full = _questions(full=False), _questions(full=True)
    decide_us = _decide_us(_router(), plain, batches)
    with_open = _router()
    with_open.note(
        Sighting(model="model-0", origin="https://host-0.example.com:443", failure="rate_limit", rest_s=1e6), 0
    )
    decide = {
        "decide_cpu_us": decide_us,
        "decide_full_cpu_us": _decide_us(_router(), full, batches),
        "decide_open_cpu_us": _decide_us(with_open, plain, batches),
    }
    figures: dict[str, Figure] = {
        **decide,
        "decide_worst_cpu_us": max(decide.values()),
        "plan_cpu_us": _plan_us(batches),
    }
    return Report(
        figures=figures,
        reach={"decide_worst_cpu_us": "<= 50"},
        conditions={"batches": f"{batches} of {_BATCH}"},
    )
