"""A promise that is broken is found, whichever it is: each cell's judge is shown what must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Session
from tests.faults.calls import KEY, PROMPT, OurCall, Outcome
from tests.faults.judging import problems_of
from tests.faults.table import Cell, Difference, Fault
from tests.faults.wire import Counts

FAULT = Fault(name="none", peer="script")
CELL = Cell("none", "sync", False, "HTTP/1.1", "default")


class Case:
    """A call that went well with both clients, for a test to spoil."""

    def __init__(self, record: fastlane.CallRecord) -> None:
        self.fault = FAULT
        self.stock, self.stock_counts = Outcome(result=["answer"]), Counts(requests=1, begun=1)
        self.ours = OurCall(result=["answer"], calls=(record,), hooked=[record])
        self.ours.opened = self.ours.closed = [Session()]
        self.counts = Counts(requests=1, begun=1)

    def problems(self) -> list[str]:
        stock, ours = (self.stock, self.stock_counts), (self.ours, self.counts)
        return problems_of(CELL, self.fault, stock, ours, good=["good answer"], retries=2)

    def now_the_record_is(self, **fields: Any) -> None:
        record = replace(self.ours.calls[0], **fields)
        self.ours.calls, self.ours.hooked = (record,), [record]

    def fails(self, error: BaseException) -> None:
        self.ours.error = error
        self.now_the_record_is(outcome="failed", error=type(error).__name__)


@pytest.fixture
def case(arguments: dict[str, Any]) -> Case:
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
    return Case(client.calls[0])


def test_success_of_both_clients_has_no_problems(case: Case) -> None:
    assert case.problems() == []


def put(thing: object, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(thing, name, value)


def retry(case: Case) -> None:
    (attempt,) = case.ours.calls[0].attempts
    case.now_the_record_is(attempts=(attempt, replace(attempt, number=2, kind="retry")))
    case.counts.requests, case.ours.retries = 2, 1


def spoil_pauses(case: Case, *pauses_s: str) -> None:
    """Retry after pauses, where the provider has announced 0.25 s."""
    retry(case)
    case.fault = replace(FAULT, emulator="status=429;retry_after=0.25")
    case.stock.retries = case.ours.retries = len(pauses_s)
    case.stock_counts.begun = case.counts.begun
    case.ours.logged = [f"Retrying request to /chat/completions in {pause} seconds" for pause in pauses_s]


def fail_both(case: Case, error: Exception, cause: Exception | None = None) -> None:
    case.stock.error = openai.OpenAIError("")
    error.__cause__ = cause
    case.fails(error)


SPOILT: dict[str, Callable[[Case], None]] = {
    "another result": lambda case: put(case.ours, result=["another"]),
    "another error": lambda case: case.fails(openai.OpenAIError("no")),
    "slow": lambda case: put(case.ours, seconds=FAULT.bound_s + 1),
    "retried": retry,
    "billed twice": lambda case: put(case.counts, begun=2),
    "two records": lambda case: put(case.ours, hooked=case.ours.hooked * 2),
    "no record": lambda case: put(case.ours, hooked=[]),
    "an open session": lambda case: put(case.ours, closed=[]),
    "wrong outcome": lambda case: case.now_the_record_is(outcome="failed", error="APIError"),
    "an attempt too few": lambda case: put(case.counts, requests=2),
    "key in the log": lambda case: put(case.ours, logged=[f"asked with {KEY}"]),
    "prompt in the error": lambda case: fail_both(case, openai.OpenAIError(f"of {PROMPT}")),
    "prompt in a cause": lambda case: fail_both(case, openai.OpenAIError("no"), ValueError(PROMPT)),
    "prompt in the record": lambda case: case.now_the_record_is(changes=(f"cut {PROMPT}",)),
    "key elsewhere": lambda case: put(case.counts, keys_elsewhere=1),
    "no jitter": lambda case: spoil_pauses(case, "0.3", "0.3"),
    "a shorter pause": lambda case: spoil_pauses(case, "0.22"),
    "unseen bursts": lambda case: put(case, fault=replace(FAULT, is_held_back=True)),
    "a complaint": lambda case: put(case.ours, complaints=["tasks are left"]),
}


@pytest.mark.parametrize("promise", SPOILT)
def test_broken_promise_is_a_problem(case: Case, promise: str) -> None:
    SPOILT[promise](case)

    assert case.problems()


def test_declared_difference_must_occur(case: Case) -> None:
    otherwise = Difference(why="it is better", raises="APITimeoutError")
    case.fault = replace(FAULT, differs=(otherwise,))

    assert case.problems() == ["raised answer, where APITimeoutError is expected"]

    case.stock.error = openai.OpenAIError("")
    case.fault = replace(FAULT, differs=(replace(otherwise, raises=None),))
    assert case.problems() == ["another result: part 0: ['answer'] in place of ['good answer']"]

    case.ours.result = ["good answer"]
    assert case.problems() == []


def test_hedge_is_no_double_billing(case: Case) -> None:
    (attempt,) = case.ours.calls[0].attempts
    case.now_the_record_is(attempts=(attempt, replace(attempt, number=2, kind="hedge", given_up="lost")))
    case.ours.hedges, case.counts = 1, Counts(requests=2, begun=2)

    assert case.problems() == []
