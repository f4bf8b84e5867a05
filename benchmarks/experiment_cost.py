"""What an experiment adds to a call: CPU on the call's thread, and with all that is counted of it later.

Pairs of batches of a client that takes part in an experiment of an arm against itself, half of the units in each, and
of a client with the same plays and without one; both over the same in-memory transport. Each call is of one of 1,000
units, told by `with fastlane.experiments.unit(...)`. `…_thread_added_us` is what the call's own thread does (find the
unit, draw its arm, hand over the call that is over), and `assign_cpu_us` the first two by themselves, by this thread's
CPU; `…_added_us` has the counting in it too, which a thread of its own does otherwise: here it is done inside of the
batch. `…_nothing_us` is a second client without an experiment, which shows how large a difference this run would report
where there is none. Inside: all CPU of the process from the application's call to the typed answer, or to the last
chunk of a stream. Outside: network, TLS, garbage collection, and the exchange with the store, which is once a second
for all calls together: `exchange_cpu_us` for a file of SQLite's, two arms that are full.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import openai
from openai._models import FinalRequestOptions

import fastlane
from benchmarks._paired import cpu_pairs, differences, median
from benchmarks._prepared import ANSWER, MODEL, Prepared, stream_of
from benchmarks._report import Figure, Reach, Report
from fastlane import Connection, PromptCache
from fastlane._clock import cpu_ns, thread_cpu_ns
from fastlane.experiments import Experiment, unit
from fastlane.experiments.comparison import METRICS, ArmSums

_CALLS = 20
_CHUNKS = 20
_UNITS = 1_000
_MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]
_CONNECTION: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}


def _experiment(folder: Path, name: str) -> Experiment:
    plays = (Connection(), PromptCache())
    made = Experiment(name, {"control": plays, "again": plays}, share={"again": 0.5}, store=folder / "cost.sqlite")
    # The timer's thread would count in the middle of a measurement.
    made.ledger._is_planned = True
    return made


def _batch(client: fastlane.OpenAI, *, stream: bool, then: Callable[[], object]) -> Callable[[], None]:
    numbers = count()

    def run() -> None:
        for _ in range(_CALLS):
            with unit(f"user-{next(numbers) % _UNITS}"):
                answer = client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=stream)
                if isinstance(answer, openai.Stream):
                    for _chunk in answer:
                        pass
        then()

    return run


def _added(folder: Path, *, stream: bool, pairs: int) -> dict[str, Figure]:
    content_type = "text/event-stream" if stream else "application/json"
    transport = Prepared(content_type, stream_of(_CHUNKS) if stream else (ANSWER,))
    kind = "stream" if stream else "call"
    waiting, counting = (_experiment(folder, f"{kind}-{what}") for what in ("waiting", "counting"))
    clients = [
        fastlane.OpenAI(**_CONNECTION, http_client=httpx2.Client(transport=transport), experiment=experiment)
        for experiment in (None, waiting, counting, None)
    ]
    afterwards: list[Callable[[], object]] = [int, int, counting.ledger._count_waiting, int]
    arms = [_batch(client, stream=stream, then=then) for client, then in zip(clients, afterwards, strict=True)]
    taken = [[one / 1e3 / _CALLS for one in arm] for arm in cpu_pairs(arms, pairs)]
    plain, on_thread, whole, again = taken
    counted = sum(arm.calls for arm in counting.report().arms)
    if counted != (pairs + 3) * _CALLS:
        raise RuntimeError(f"{counted} calls were counted")
    for client in clients:
        client.close()
    waiting.close()
    counting.close()
    own = median(differences(on_thread, plain))
    return {
        f"{kind}_thread_added_us": own.value,
        f"{kind}_thread_added_low_us": own.low,
        f"{kind}_thread_added_high_us": own.high,
        f"{kind}_added_us": median(differences(whole, plain)).value,
        f"{kind}_nothing_us": median(differences(again, plain)).value,
        f"{kind}_plain_us": median(plain).value,
        f"{kind}_thread_added_ratio": own.value / median(plain).value,
    }


def _exchange_us(folder: Path, exchanges: int) -> float:
    """CPU microseconds of telling the store of what was counted, when every cell has something."""
    experiment, random = _experiment(folder, "exchange"), Random(0)
    taken = []
    for _ in range(exchanges):
        for arm in ("control", "again"):
            sums = experiment.ledger._pending[arm] = ArmSums()
            for _ in range(200):
                sums.add(random.choice(tuple(METRICS)), f"{random.getrandbits(64):016x}", abs(random.gauss(0, 1)))
        started = cpu_ns()
        if not experiment.flush():
            raise RuntimeError("the store is unreachable")
        taken.append((cpu_ns() - started) / 1e3)
    experiment.close()
    return median(taken).value


def _assign_us(folder: Path, batches: int) -> float:
    """Microseconds of this thread's CPU for choosing the client and the arm of a call."""
    experiment, taken = _experiment(folder, "assign"), []
    with fastlane.OpenAI(**_CONNECTION, experiment=experiment) as client, unit("user-42"):
        options = FinalRequestOptions.construct(method="post", url="/chat/completions", json_data={}, extra_json={})
        shell = client._fastlane
        assert shell is not None
        for _ in range(batches):
            started = thread_cpu_ns()
            for _ in range(200):
                shell.arms.choose(client, options)
            taken.append((thread_cpu_ns() - started) / 200 / 1e3)
    experiment.close()
    return median(taken).value


def measure(quick: bool) -> Report:
    """Measure calls, streams and the exchange."""
    pairs = 150 if quick else 600
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = {
            **_added(folder, stream=False, pairs=pairs),
            **_added(folder, stream=True, pairs=pairs),
            "assign_cpu_us": _assign_us(folder, 50 if quick else 200),
            "exchange_cpu_us": _exchange_us(folder, 20 if quick else 100),
        }
    return Report(
        figures=figures,
        reach=(
            Reach(figure="call_thread_added_us", op="<=", target=10),
            Reach(figure="stream_thread_added_us", op="<=", target=10),
        ),
        conditions={"pairs": pairs, "calls_in_a_batch": _CALLS, "chunks_of_a_stream": _CHUNKS, "units": _UNITS},
    )
