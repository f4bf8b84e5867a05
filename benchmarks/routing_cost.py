"""What a decision of `Routing` costs: CPU microseconds with 20 candidates, and as a share of a call.

A catalog of 20 models at origins of their own, of each of which answers have been noted; then questions of changing
sizes and tasks, one a second of simulated time, so that nothing that decays with silence is known already. Inside: the
decision alone, as medians of batches of this thread's CPU time; with plain questions (`decide_cpu_us`), with a way and
a cache for each candidate (`decide_full_cpu_us`), with one breaker open (`decide_open_cpu_us`), and what noting one
attempt costs (`note_cpu_us`). Also as a share of the CPU time that a call of this client takes beside it
(`share_of_call_ratio`, of the 0.8 ms that a small call of the stock client takes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from benchmarks._paired import median
from benchmarks._report import Figure, Reach, Report, main
from fastlane._clock import thread_cpu_ns
from fastlane.catalog._models import Catalog, CatalogModel
from fastlane.catalog._scores import Scoreboard
from fastlane.prediction._sighting import Sighting
from fastlane.prediction._upstream import Upstream
from fastlane.routing._memory import Memory
from fastlane.routing._question import Question, Way

_MODELS = 20
_BATCH = 100
_S = 1_000_000_000
_CALL_US = 800.0


def _memory() -> Memory:
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
    memory = Memory(Catalog(models=models), scoreboard=Scoreboard())
    for number in range(30 * _MODELS):
        memory.note(_sighting(number, random), number * _S)
    return memory


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


def _questions(*, full: bool) -> list[Question]:
    random = Random(1)
    origins = [f"https://host-{index}.example.com:443" for index in range(_MODELS)]
    ways = {origin: Way(connect_s=0.05, upload_s=0.01, round_trip_s=0.02) for origin in origins}
    cached = {Upstream(f"model-{index}", origin): 500.0 for index, origin in enumerate(origins)}
    return [
        Question(
            task=f"task-{number % 3}",
            quality_bar=10.0,
            input_tokens=random.uniform(600, 50_000),
            ways=ways if full else {},
            cached_tokens=cached if full else {},
        )
        for number in range(_BATCH)
    ]


def _batches_us(do: Callable[[int], object], batches: int) -> Sequence[float]:
    taken = []
    for batch in range(batches):
        started = thread_cpu_ns()
        for number in range(batch * _BATCH, (batch + 1) * _BATCH):
            do(number)
        taken.append((thread_cpu_ns() - started) / _BATCH / 1e3)
    return taken


def _decide_us(memory: Memory, questions: Sequence[Question], batches: int) -> float:
    start = 30 * _MODELS
    return median(
        _batches_us(lambda number: memory.decide(questions[number % _BATCH], (start + number) * _S), batches)
    ).value


def measure(quick: bool) -> Report:
    """Decide and note, in batches."""
    batches = 30 if quick else 200
    plain, full = _questions(full=False), _questions(full=True)
    decide_us = _decide_us(_memory(), plain, batches)
    with_open = _memory()
    with_open.note(
        Sighting(model="model-0", origin="https://host-0.example.com:443", failure="rate_limit", rest_s=1e6), 0
    )
    random = Random(2)
    memory = _memory()
    sightings = [_sighting(number, random) for number in range(_BATCH)]
    note_us = median(
        _batches_us(lambda number: memory.note(sightings[number % _BATCH], (600 + number) * _S), batches)
    ).value
    figures: dict[str, Figure] = {
        "decide_cpu_us": decide_us,
        "decide_full_cpu_us": _decide_us(_memory(), full, batches),
        "decide_open_cpu_us": _decide_us(with_open, plain, batches),
        "note_cpu_us": note_us,
        "share_of_call_ratio": decide_us / _CALL_US,
    }
    return Report(
        figures=figures,
        reach=(Reach(figure="decide_cpu_us", op="<=", target=50),),
        conditions={"candidates": _MODELS, "batches": f"{batches} of {_BATCH}"},
    )


if __name__ == "__main__":
    main("routing_cost", __doc__, measure)
