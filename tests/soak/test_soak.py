"""The soak sees what it is there to see, and its plan follows from its seed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import httpx2
import openai
import pytest

from fastlane.emulator import Fault, RequestLog
from fastlane.emulator._faults import KINDS, parse_faults
from tests.soak import faults
from tests.soak.asking import ENDS, Seen, error_of, judged
from tests.soak.judging import Judge, flatness
from tests.soak.plan import PLAYS, Op, Round, Scene, round_of

SEED = 5


def op(action: str = "a", **settings: Any) -> Op:
    given: dict[str, Any] = {"nonce": action, "api": "chat", "stream": False, "size": 20, **settings}
    return Op(action=action, **given)


def entry(tag: str | None, **settings: Any) -> RequestLog:
    given: dict[str, Any] = {
        "sequence_number": 0, "request_id": "r", "method": "POST", "path": "/v1/chat/completions",
        "http_version": "HTTP/2", "connection_id": "c1", "stream_id": 1, "connection_request_number": 1,
        "header_names": (), "received_ns": 0, "tag": tag, "status": 200, "output_tokens": 5, **settings,
    }  # fmt: skip
    return RequestLog(**given)


def attempt(**settings: Any) -> dict[str, Any]:
    return {"kind": "first", "status": 200, "error": None, "resent": 0, "given_up": None, "origin": "o", **settings}


def record(action: str, *attempts: dict[str, Any], outcome: str = "completed") -> dict[str, Any]:
    return {"action": action, "call_id": "1", "outcome": outcome, "attempts": list(attempts or (attempt(),))}


def failures(*ops: Op, seen: Any = None, records: Any = None, log: Any = None, **told: Any) -> list[str]:
    """What the judge finds in a round; all is well with it unless said otherwise."""
    scene = Scene(
        number=0, way="threads", asynchronous=False, loop="asyncio", target="h2", plays="default", client="kept",
        runs=1, actors=(ops,),
    )  # fmt: skip
    judge = Judge()
    judge.round_is_over(
        Round(number=0, bare=False, scenes=(scene,)),
        {
            "seen": [(each.action, "answer", "", 0.1) for each in ops] if seen is None else seen,
            "records": [record(each.action) for each in ops] if records is None else records,
            "left": [], "wrong": [], "noises": [], **told,
        },
        [[entry(each.nonce) for each in ops] if log is None else log, []],
    )  # fmt: skip
    return [failure.kind for failure in judge.failures]


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert [round_of(SEED, number) for number in range(12)] == [round_of(SEED, number) for number in range(12)]
    assert round_of(SEED, 0) != round_of(SEED + 1, 0)
    assert round_of(SEED, 0) != round_of(SEED, 1)


def test_the_plan_has_everything_in_it_and_faults_at_their_share() -> None:
    rounds = [round_of(SEED, number) for number in range(60)]
    scenes = [scene for drawn in rounds for scene in drawn.scenes]
    ops = [each for drawn in rounds for each in drawn.ops]

    assert {scene.way for scene in scenes} == {"threads", "wall", "tasks", "clients", "fork", "together"}
    assert {scene.plays for scene in scenes} == {*PLAYS, "routing"}
    assert {scene.target for scene in scenes} == {"h2", "h1", "routed"}
    assert {scene.loop for scene in scenes if scene.asynchronous} == {"asyncio", "uvloop"}
    assert {len(scene.actors) for scene in scenes if scene.way == "wall"} == {64}
    assert {each.leave for each in ops} >= {"whole", "close", "with", "drop", "cycle", "elsewhere", "timeout"}
    assert {each.leave for each in ops} >= {"cancel", "gave_up"}
    assert {faults.kind_of(each.fault) for each in ops if each.fault} == {*KINDS}
    assert 0.04 < sum(each.fault is not None for each in ops) / len(ops) < 0.06
    assert len({each.action for each in ops}) == len(ops)


def test_every_fault_that_the_emulator_has_is_drawn_and_is_one() -> None:
    assert {*faults.KINDS} == {*KINDS}
    for each in (one for number in range(200) for one in round_of(SEED, number).ops if one.fault):
        assert parse_faults(each.fault or "") == (Fault.parse(each.fault or ""),)
    assert {end for kind in faults.KINDS.values() for end in kind.ends} <= {*ENDS}


def test_a_round_in_which_all_is_well_has_no_failure() -> None:
    assert failures(op("a"), op("b")) == []


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        ([], ["lost"]),
        ([("a", "answer", "", 0.1)] * 2, ["lost"]),
        ([("a", "foreign", "soak<b>", 0.1)], ["crossed"]),
        ([("a", "status", "", 0.1)], ["record", "unfit"]),
        ([("a", "cut", "", 0.1)], ["record", "unfit"]),
    ],
)
def test_a_call_that_is_lost_or_crossed_or_ends_in_a_way_that_does_not_fit_is_found(seen: Any, kinds: Any) -> None:
    assert failures(op("a"), seen=seen) == kinds


def test_an_error_that_fits_the_fault_is_none() -> None:
    struck = op("a", fault="status=400")
    seen = [("a", "status", "openai.BadRequestError 400", 0.1)]
    assert failures(struck, seen=seen, records=[record("a", attempt(status=400), outcome="failed")]) == []


def test_requests_that_no_record_lists_and_second_bills_are_found() -> None:
    assert failures(op("a"), log=[entry("a"), entry("a", stream_id=3)]) == ["doubled"]
    resent = [record("a", attempt(resent=1))]
    assert failures(op("a"), records=resent, log=[entry("a", output_tokens=0, status=None), entry("a")]) == []
    assert failures(op("a"), records=resent, log=[entry("a"), entry("a")]) == ["doubled"]
    assert failures(op("a"), log=[entry("a"), entry(None)]) == ["doubled"]
    hedged = [record("a", attempt(given_up="lost"), attempt(kind="hedge"))]
    assert failures(op("a"), records=hedged, log=[entry("a"), entry("a")]) == []
    retried = [record("a", attempt(), attempt(kind="retry"))]
    assert failures(op("a"), records=retried, log=[entry("a"), entry("a")]) == ["doubled"]
    retried = [record("a", attempt(status=503), attempt(kind="retry"))]
    assert failures(op("a"), records=retried, log=[entry("a", output_tokens=0, status=503), entry("a")]) == []


def test_an_answer_that_nobody_generated_is_crossed() -> None:
    assert failures(op("a"), log=[entry("a", output_tokens=0)]) == ["crossed"]


def test_each_call_has_one_record_that_says_what_happened() -> None:
    assert failures(op("a"), records=[]) == ["record", "doubled"]
    assert failures(op("a"), records=[record("a"), record("a")]) == ["record"]
    assert failures(op("a"), records=[record("a", outcome="failed")]) == ["record"]


@pytest.mark.parametrize("kind", ["left", "wrong", "noises"])
def test_what_is_left_or_said_is_a_failure(kind: str) -> None:
    assert failures(op("a"), **{kind: ["descriptor 9"]}) == [kind]


def test_that_a_model_cannot_be_reached_may_be_said_where_faults_break_connections() -> None:
    said = ["log: fastlane: the model 'one' of the catalog could not be connected to at https://127.0.0.1:1"]
    assert failures(op("a"), noises=said) == ["noises"]
    assert "noises" not in failures(op("a", fault="drop"), noises=said)
    said = ["log: fastlane: the model 'one' of the catalog answered 404 at https://127.0.0.1:1: its model (said once)"]
    assert "noises" in failures(op("a", fault="status=403;times=1"), noises=said)
    assert "noises" not in failures(op("a", fault="status=404;times=1"), noises=said)


def test_a_call_that_a_fault_strikes_may_time_out_at_another_provider() -> None:
    struck, seen = op("a", fault="no_done"), [("a", "timeout", "openai.APITimeoutError", 1.2)]
    broken, late = attempt(kind="hedge", error="RemoteProtocolError"), attempt(status=None, error="ConnectTimeout")
    elsewhere = record("a", broken, {**late, "origin": "p"}, outcome="failed")
    assert "unfit" not in failures(struck, seen=seen, records=[elsewhere])
    assert "unfit" in failures(struck, seen=seen, records=[record("a", broken, late, outcome="failed")])
    assert "unfit" in failures(op("a"), seen=seen, records=[elsewhere])


@pytest.mark.parametrize(
    ("api", "stream", "fits"), [("responses", False, True), ("responses", True, False), ("chat", False, False)]
)
def test_a_whole_response_whose_stream_lacks_its_last_event_may_be_taken_for_broken_off(
    api: str, stream: bool, fits: bool
) -> None:
    struck = op("a", fault="no_done;times=1", api=api, stream=stream)
    broken = record("a", attempt(error="RemoteProtocolError"), outcome="failed")

    judged_so = failures(struck, seen=[("a", "connection", "openai.APIConnectionError", 0.1)], records=[broken])

    assert ("unfit" not in judged_so) == fits


def test_whose_text_it_is_is_seen() -> None:
    mine, other = op("a"), op("b")

    assert judged(mine, mine.text, whole=True) == Seen("answer")
    assert judged(mine, mine.text[:9], whole=True) == Seen("cut")
    assert judged(mine, mine.text[:9], whole=False) == Seen("part")
    assert judged(mine, other.text, whole=True).end == "foreign"
    assert judged(mine, mine.text[:9] + other.text, whole=False).end == "foreign"
    assert judged(dataclasses.replace(mine, fault="misparse"), "A review.", whole=True) == Seen("misread")


def test_errors_are_known_by_their_kind() -> None:
    request = httpx2.Request("POST", "https://example.com")

    assert error_of(openai.APITimeoutError(request)).end == "timeout"
    assert error_of(openai.APIConnectionError(request=request)).end == "connection"
    assert error_of(asyncio.CancelledError()).end == "cancelled"
    assert error_of(json.JSONDecodeError("no", "", 0)).end == "malformed"
    assert error_of(RuntimeError("other")).end == "unexpected"


def test_memory_that_grows_is_found_and_memory_that_varies_is_not() -> None:
    growing = flatness([(minute, 100.0 + minute) for minute in range(30)])
    varying = flatness([(minute, 100.0 + minute % 3) for minute in range(30)])
    warming = flatness([(minute, min(100.0, 50.0 + 10 * minute)) for minute in range(30)])

    assert growing is not None
    assert not growing.holds
    assert varying is not None
    assert varying.holds
    assert warming is not None
    assert warming.holds
    assert flatness([(0, 1.0), (1, 1.0), (2, 1.0)]) is None
