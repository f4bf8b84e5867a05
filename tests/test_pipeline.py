from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fastlane import Call, CallRecord, Play, Stage
from fastlane.engine.pipeline import NO_SESSIONS, REMEMBERED_CALLS, Pipeline
from fastlane.records import Timeline
from tests.session_play import SessionPlay


@dataclass(frozen=True, slots=True)
class Notes(SessionPlay):
    """A play that notes its turn on the call."""

    stage: ClassVar[Stage] = Stage.SHAPE

    def plan(self, call: Call) -> Call:
        return replace(call, changes=(*call.changes, type(self).__name__))


class Routes(Notes):
    stage = Stage.ROUTE


class Shapes(Notes):
    stage = Stage.SHAPE


class ShapesToo(Notes):
    stage = Stage.SHAPE


class Encodes(Notes):
    stage = Stage.ENCODE


@dataclass(frozen=True)
class Closes(SessionPlay):
    """Keeps how calls have ended."""

    endings: list[str] = field(default_factory=list, repr=False)

    def close(self, outcome: Any) -> None:
        self.endings.append(outcome.ending)


def call() -> Call:
    return Call(call_id="a-1", endpoint="/chat/completions", origin="https://x:443", body={"model": "m"}, stream=True)


def record(call_id: str = "a-1") -> CallRecord:
    timeline = Timeline(started_wall_ns=0, started_ns=0, ended_ns=1)
    return CallRecord(
        call_id=call_id,
        method="POST",
        endpoint="/chat/completions",
        origin="https://x:443",
        model="m",
        stream=False,
        outcome="completed",
        timeline=timeline,
    )


class Over:
    """A call that is over, which counts how often its record is read."""

    def __init__(self, call_id: str = "a-1") -> None:
        self.asked = 0
        self._record = record(call_id)

    def record(self) -> CallRecord:
        self.asked += 1
        return self._record


def pipeline(*plays: Play, on_call_end: Any = (), raise_play_errors: bool = False) -> Pipeline:
    return Pipeline(plays, on_call_end, raise_play_errors=raise_play_errors)


def planned_by(pipeline: Pipeline) -> Call:
    return pipeline.plan(call(), pipeline.open_upstream(call(), NO_SESSIONS))


def close(pipeline: Pipeline) -> None:
    ended: Any = SimpleNamespace(ending="completed")
    pipeline.open_upstream(call(), NO_SESSIONS).close(ended, quietly=False)


def test_plays_plan_by_stage_then_by_given_order() -> None:
    planned = planned_by(pipeline(Encodes(), ShapesToo(), Shapes(), Routes()))

    assert planned.changes == ("Routes", "ShapesToo", "Shapes", "Encodes")


def test_last_calls_are_remembered_the_oldest_first() -> None:
    made = pipeline()
    before = made.calls, made.last_call
    for number in range(REMEMBERED_CALLS + 5):
        made.report(Over(f"a-{number}"))

    assert before == ((), None)
    assert REMEMBERED_CALLS == 1_000
    assert len(made.calls) == REMEMBERED_CALLS
    assert made.calls[0].call_id == "a-5"
    assert made.last_call is made.calls[-1]


def test_report_of_a_finalizer_is_made_by_another_thread() -> None:
    seen: list[int] = []
    reported = threading.Event()

    def hook(_: CallRecord) -> None:
        seen.append(threading.get_ident())
        reported.set()

    made = pipeline(on_call_end=[hook])
    made.report_later(lambda: made.report(Over(), quietly=True))

    assert reported.wait(30)
    assert seen != [threading.get_ident()]


def test_calls_waits_for_reports_that_finalizers_have_left() -> None:
    seen: list[CallRecord] = []
    for number in range(50):
        over = Over(f"a-{number}")
        made = pipeline(on_call_end=[seen.append])
        made.report_later(partial(made.report, over, quietly=True))

        assert made.calls == (over.record(),)
        assert seen[number:] == [over.record()]


def test_calls_can_be_read_by_a_hook_during_a_late_report() -> None:
    found: list[tuple[CallRecord, ...]] = []
    made: Pipeline = pipeline(on_call_end=[lambda _: found.append(made.calls)])
    over = Over()
    made.report_later(partial(made.report, over, quietly=True))

    assert made.last_call is over.record()
    assert found == [(over.record(),)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_late_report_is_made_by_the_parent_of_a_fork_alone() -> None:
    """Though the thread that was making it, and has a lock for that, does not live on in the child."""
    begun, go_on = threading.Event(), threading.Event()

    def hook(_: CallRecord) -> None:
        begun.set()
        go_on.wait(30)

    made = pipeline(on_call_end=[hook])
    made.report_later(partial(made.report, Over(), quietly=True))
    made.report_later(partial(made.report, Over("a-2"), quietly=True))
    begun.wait(30)
    child = os.fork()
    if child == 0:
        took_the_lock = made._reporting.acquire(blocking=False)
        os._exit(0 if took_the_lock and not made.unreported else 1)
    status = os.waitpid(child, 0)[1]
    go_on.set()

    assert os.waitstatus_to_exitcode(status) == 0
    assert len(made.calls) == 2
