"""The soak finds what it should find, and its plan follows from its seed."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane.emulator import RequestLog
from fastlane.emulator._faults import KINDS, parse_faults
from tests.soak.asking import ENDS, judged
from tests.soak.judging import Judge, growth
from tests.soak.plan import FAULTS, PLAYS, Op, Round, Scene, kind_of, round_of

SEED = 5
UNREACHABLE = "log: fastlane: the model 'one' of the catalog could not be connected to at https://127.0.0.1:1"
REFUSED = "log: fastlane: the model 'one' of the catalog answered 404 at https://127.0.0.1:1: its model (said once)"


def op(action: str = "a", **settings: Any) -> Op:
    return Op(**{"action": action, "nonce": action, "api": "chat", "stream": False, "size": 20, **settings})


def entry(tag: str | None = "a", **settings: Any) -> RequestLog:
    given: dict[str, Any] = {
        "sequence_number": 0, "request_id": "r", "method": "POST", "path": "/v1/chat/completions",
        "http_version": "HTTP/2", "connection_id": "c1", "stream_id": 1, "connection_request_number": 1,
        "header_names": (), "received_ns": 0, "tag": tag, "status": 200, "output_tokens": 5, **settings,
    }  # fmt: skip
    return RequestLog(**given)


def record(*changes: dict[str, Any], outcome: str = "completed", action: str = "a") -> dict[str, Any]:
    """A record with one attempt for each of the changes."""
    usual = {"kind": "first", "status_code": 200, "error": None, "resent": 0, "given_up": None, "origin": "o"}
    return {"action": action, "outcome": outcome, "attempts": [{**usual, **change} for change in changes or ({},)]}


def failures(
    call: Op | None = None, seen: Any = None, records: Any = None, log: Any = None, **report: Any
) -> list[str]:
    """What the judge finds in a round of one call; all is well with it by default."""
    call = call or op()
    ended = [("a", "answer", "", 0.1)] if seen is None else [("a", end, "", 0.1) for end in seen]
    report = {"seen": ended, "records": [record()] if records is None else records, **report}
    judge, scene = Judge(), Scene(way="threads", actors=((call,),))
    judge.round_is_over(
        Round(number=0, bare=False, scenes=(scene,)),
        {"left": [], "wrong": [], "reports": [], **report},
        [[entry()] if log is None else log, []],
    )
    return [failure.kind for failure in judge.failures]


def test_same_seed_gives_the_same_plan() -> None:
    assert [round_of(SEED, number) for number in range(12)] == [round_of(SEED, number) for number in range(12)]
    assert round_of(SEED, 0) != round_of(SEED + 1, 0)
    assert round_of(SEED, 0) != round_of(SEED, 1)


def test_plan_has_every_scene_and_fault() -> None:
    rounds = [round_of(SEED, number) for number in range(60)]
    scenes = [scene for drawn in rounds for scene in drawn.scenes]
    ops = [each for drawn in rounds for each in drawn.ops]
    struck = [each.fault for each in ops if each.fault]

    assert {scene.way for scene in scenes} == {"threads", "wall", "tasks", "clients", "fork", "together"}
    assert {scene.plays for scene in scenes} == {*PLAYS, "routing"}
    assert {scene.target for scene in scenes} == {"h2", "h1", "routed"}
    assert {scene.loop for scene in scenes if scene.asynchronous} == {"asyncio", "uvloop"}
    assert {each.leave for each in ops} >= {"whole", "close", "with", "drop", "cycle", "elsewhere", "timeout"}
    assert {each.leave for each in ops} >= {"cancel", "gave_up"}
    assert {*map(kind_of, struck)} == {*FAULTS} == {*KINDS} - {"evict", "slow_reader"}  # faults of WebSockets
    assert all(len(parse_faults(form)) == 1 for kind in FAULTS.values() for form in kind.forms)
    assert {end for kind in FAULTS.values() for end in kind.ends} <= {*ENDS}
    assert 0.04 < len(struck) / len(ops) < 0.06
    assert len({each.action for each in ops}) == len(ops)


RESENT = [record({"resent": 1})]
FAILED_400 = [record({"status_code": 400}, outcome="failed")]
HEDGED = [record({"given_up": "lost"}, {"kind": "hedge"})]
RETRIED, RETRIED_503 = [record({}, {"kind": "retry"})], [record({"status_code": 503}, {"kind": "retry"})]
BROKEN, LATE = {"kind": "hedge", "error": "RemoteProtocolError"}, {"status_code": None, "error": "ConnectTimeout"}
LATE_ELSEWHERE = [record(BROKEN, {**LATE, "origin": "p"}, outcome="failed")]
LATE_THERE = [record(BROKEN, LATE, outcome="failed")]
CUT_OFF = [record({"error": "RemoteProtocolError"}, outcome="failed")]


@pytest.mark.parametrize(
    ("report", "kinds"),
    [
        ({}, []),
        ({"seen": []}, ["lost"]),
        ({"seen": ["answer", "answer"]}, ["lost"]),
        ({"seen": ["foreign"]}, ["crossed"]),
        ({"seen": ["status"]}, ["record", "unfit"]),
        # An error that fits the fault.
        ({"call": op(fault="status=400"), "seen": ["status"], "records": FAILED_400}, []),
        # Requests that no record lists, and second bills.
        ({"log": [entry(), entry(stream_id=3)]}, ["doubled"]),
        ({"records": RESENT, "log": [entry(output_tokens=0, status=None), entry()]}, []),
        ({"records": RESENT, "log": [entry(), entry()]}, ["doubled"]),
        ({"log": [entry(), entry("of no round")]}, ["doubled"]),
        ({"records": HEDGED, "log": [entry(), entry()]}, []),
        ({"records": RETRIED, "log": [entry(), entry()]}, ["doubled"]),
        ({"records": RETRIED_503, "log": [entry(output_tokens=0, status=503), entry()]}, []),
        ({"log": [entry(output_tokens=0)]}, ["crossed"]),
        ({"records": []}, ["record", "doubled"]),
        ({"records": [record(), record()]}, ["record"]),
        ({"records": [record(outcome="failed")]}, ["record"]),
        ({"left": ["descriptor 9"]}, ["left"]),
        ({"wrong": ["an error"]}, ["wrong"]),
        ({"reports": ["a warning"]}, ["reports"]),
        # `Routing` logs this of a model: right if faults break connections, or have that status.
        ({"reports": [UNREACHABLE]}, ["reports"]),
        ({"reports": [UNREACHABLE], "call": op(fault="drop;times=1")}, []),
        ({"reports": [REFUSED], "call": op(fault="status=403;times=1")}, ["reports"]),
        ({"reports": [REFUSED], "call": op(fault="status=404;times=1")}, []),
        # A call that a fault strikes may time out at another provider.
        ({"call": op(fault="no_done"), "seen": ["timeout"], "records": LATE_ELSEWHERE}, []),
        ({"call": op(fault="no_done"), "seen": ["timeout"], "records": LATE_THERE}, ["unfit"]),
        ({"seen": ["timeout"], "records": LATE_ELSEWHERE}, ["unfit"]),
        # A whole response whose stream lacks its last event may be taken for broken off.
        ({"call": op(fault="no_done", api="responses"), "seen": ["connection"], "records": CUT_OFF}, []),
        ({"call": op(fault="no_done", api="chat"), "seen": ["connection"], "records": CUT_OFF}, ["unfit"]),
    ],
)
def test_judge_finds_each_kind_of_failure(report: dict[str, Any], kinds: list[str]) -> None:
    assert failures(**report) == kinds


@pytest.mark.parametrize(
    ("got", "whole", "end"),
    [
        (op().text, True, "answer"),
        (op().text[:9], True, "cut"),
        (op().text[:9], False, "part"),
        (op("b").text, True, "foreign"),
        (op().text[:9] + op("b").text, False, "foreign"),
        ("A review.", True, "misread"),
    ],
)
def test_text_is_identified_by_its_nonce(got: str, whole: bool, end: str) -> None:
    assert judged(op(fault="misparse"), got, whole=whole).end == end


def test_growth_excludes_the_warm_up() -> None:
    assert growth([(minute, 100.0 + minute) for minute in range(30)]) == pytest.approx(0.14, abs=0.02)
    assert growth([(minute, 100.0 + minute % 3) for minute in range(30)]) == pytest.approx(0, abs=0.01)
    assert growth([(minute, min(100.0, 50.0 + 10 * minute)) for minute in range(30)]) == 0
    assert growth([(0, 1.0), (1, 1.0), (2, 1.0)]) is None
