"""In which form a body is sent, decided step by step, without any I/O."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx2
import pytest

from fastlane.knowledge.table import Table
from fastlane.plays.request_encoding import _sending
from fastlane.plays.request_encoding._probe import Answer
from fastlane.plays.request_encoding._sending import Ask, Drop, Send, Sending, Step, Write
from fastlane.plays.request_encoding._shares import Shares
from fastlane.plays.request_encoding._verdicts import Key, verdicts
from fastlane.plays.request_encoding.plan import Encode
from fastlane.transport.protocols.upload import Path

TEXT = " ".join(f"Sentence {number} of the text that is to be looked at." for number in range(2_000))
ORIGIN = "https://api.example.com:443"
FAR, NEAR = Path(round_trip_time_s=0.1), Path(round_trip_time_s=0.000_05)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_sending, "shares", Shares())
    Table.clear_all()
    yield
    Table.clear_all()


def request(**body: Any) -> httpx2.Request:
    return httpx2.Request("POST", f"{ORIGIN}/v1/chat/completions", json={"model": "m", "prompt": TEXT, **body})


def sending(**settings: Any) -> Sending:
    encode = Encode(**{"forms": ("json+gzip",), "known": True, "min_bytes": 11_000, **settings})

    def went_wrong(what: str, doing: str, error: Exception) -> None:
        raise error

    return Sending(encode, origin=ORIGIN, endpoint="/chat/completions", model="m", went_wrong=went_wrong)


def drive(one: Sending, asked: httpx2.Request, path: Path, *statuses: int | Exception) -> tuple[list[Step], Any]:
    """The steps that were wanted, bodies written on the way, and how they ended; `statuses` answer what is sent."""
    left = list(statuses)
    steps = one.steps(asked, lambda _: path)
    taken: list[Step] = []
    result: Any = None
    error: Exception | None = None
    while True:
        try:
            step = steps.send(result) if error is None else steps.throw(error)
        except StopIteration as end:
            return taken, end.value.status_code
        except httpx2.HTTPError as raised:
            return taken, raised
        taken.append(step)
        result = error = None
        match step:
            case Write():
                result = step.run()
            case Send():
                answer = left.pop(0)
                if isinstance(answer, Exception):
                    error = answer
                else:
                    result = httpx2.Response(answer)


def kinds(steps: list[Step]) -> list[str]:
    return [type(step).__name__ if not isinstance(step, Send) else f"Send {step.form}" for step in steps]


def test_a_far_server_gets_fewer_bytes() -> None:
    one = sending()

    steps, status = drive(one, request(), FAR, 200)

    assert (kinds(steps), status) == (["Write", "Send json+gzip"], 200)
    record = one.record(None)
    assert record.sent_bytes < record.plain_bytes
    assert record.plain_rounds is not None
    assert record.sent_rounds is not None
    assert record.sent_rounds < record.plain_rounds
    assert record.round_trip_time_s == FAR.round_trip_time_s


def test_a_near_server_gets_the_body_as_it_is_and_no_cpu_is_spent() -> None:
    one = sending()

    steps, _ = drive(one, request(), NEAR, 200)

    assert kinds(steps) == ["Send json"]
    record = one.record(None)
    assert (record.form, record.cpu_s, record.predicted_saving_s) == ("json", 0, 0)
    assert record.sent_rounds == record.plain_rounds


def test_the_request_itself_is_left_as_it_was() -> None:
    asked = request()
    before = dict(asked.headers), asked.content

    steps, _ = drive(sending(), asked, FAR, 415, 200)

    assert (dict(asked.headers), asked.content) == before
    sent = [step.request for step in steps if isinstance(step, Send)]
    assert sent[1] is asked
    assert sent[0].url == asked.url
    assert {name: value for name, value in sent[0].headers.items() if not name.startswith("content-")} == {
        name: value for name, value in asked.headers.items() if not name.startswith("content-")
    }


def test_a_refused_response_is_dropped_before_the_body_is_sent_again() -> None:
    steps, status = drive(sending(), request(), FAR, 415, 200)

    assert (kinds(steps), status) == (["Write", "Send json+gzip", "Drop", "Send json"], 200)
    assert isinstance(steps[2], Drop)


@pytest.mark.parametrize("status", [401, 404, 408, 409, 429])
def test_any_other_refusal_is_the_applications(status: int) -> None:
    steps, ended = drive(sending(), request(), FAR, status)

    assert (kinds(steps), ended) == (["Write", "Send json+gzip"], status)
    assert kinds(drive(sending(), request(), FAR, 200)[0]) == ["Write", "Send json+gzip"]


def test_an_attempt_after_the_first_is_plain() -> None:
    one, error = sending(), httpx2.ReadTimeout("slow")

    _, ended = drive(one, request(), FAR, error)
    again, _ = drive(one, request(), FAR, 200)

    assert ended is error
    assert kinds(again) == ["Send json"]


@pytest.mark.parametrize("error", [httpx2.ConnectError("x"), httpx2.ConnectTimeout("x"), httpx2.PoolTimeout("x")])
def test_what_was_never_sent_says_nothing_of_the_form(error: Exception) -> None:
    for _ in range(5):
        drive(sending(), request(), FAR, error)

    assert kinds(drive(sending(), request(), FAR, 200)[0]) == ["Write", "Send json+gzip"]


def test_what_does_not_shrink_is_not_tried_again_for_a_while_and_then_is() -> None:
    # An image in base64: three round trips, and three as well with the quarter less that gzip makes of it.
    image = base64.b64encode(Random(1).randbytes(67_000)).decode()

    tried = ["Write" in kinds(drive(sending(), request(prompt=image), FAR, 200)[0]) for _ in range(20)]

    assert tried == [True] + [False] * 16 + [True] + [False] * 2


@pytest.mark.parametrize(
    "asked",
    [
        httpx2.Request("POST", ORIGIN, content=iter([b"{}"]), headers={"content-type": "application/json"}),
        httpx2.Request("POST", ORIGIN, content=TEXT.encode(), headers={"content-type": "text/plain"}),
        httpx2.Request("POST", ORIGIN, json={"a": TEXT}, headers={"content-encoding": "br"}),
        httpx2.Request("POST", ORIGIN, content=TEXT.encode()),
        httpx2.Request("POST", ORIGIN, files={"file": ("name", TEXT.encode())}),
    ],
    ids=["produced on the way", "text", "encoded", "of no type", "a form"],
)
def test_only_json_that_is_there_is_written_otherwise(asked: httpx2.Request) -> None:
    one = sending()

    steps, _ = drive(one, asked, FAR, 200)

    assert kinds(steps) == ["Send json"]
    assert isinstance(steps[0], Send)
    assert steps[0].request is asked


def test_the_callers_uplink_goes_before_what_the_kernel_saw() -> None:
    slow, body = sending(uplink_bytes_per_s=1e4), request()

    steps, _ = drive(slow, body, Path(round_trip_time_s=0.000_05, uplink_bytes_per_s=1e12), 200)

    assert kinds(steps) == ["Write", "Send json+gzip"]
    assert slow.record(None).predicted_saving_s > len(json.dumps(TEXT)) / 1e4 / 2


@pytest.mark.parametrize("met", [429, 500, httpx2.ReadTimeout("slow")])
def test_the_record_is_about_the_attempt_that_was_answered(met: int | Exception) -> None:
    one, body = sending(), request()
    drive(one, body, FAR, met)
    refused = one.record(None)

    drive(one, body, FAR, 200)

    answered, plain_bytes = one.record(None), len(body.content)
    assert (refused.form, refused.predicted_saving_s > 0) == ("json+gzip", True)  # nothing else has been sent
    assert refused.sent_bytes < plain_bytes
    assert (answered.form, answered.sent_bytes, answered.predicted_saving_s) == ("json", plain_bytes, 0)
    assert answered.refused == (str(met) if isinstance(met, int) else "ReadTimeout")
    assert answered.refused in answered.reason


@pytest.mark.parametrize(
    "header",
    [
        {"X-Amz-Content-SHA256": "ab"},
        {"Content-MD5": "ab"},
        {"content-digest": "sha-256=:ab:"},
        {"X-Own-Signature": "ab"},
        {"authorization": "AWS4-HMAC-SHA256 Credential=ab"},
    ],
    ids=lambda header: next(iter(header)),
)
def test_a_body_that_is_signed_stays_as_it_is(header: dict[str, str]) -> None:
    one, signed = sending(), request()
    signed.headers.update(header)

    steps, _ = drive(one, signed, FAR, 200)

    assert kinds(steps) == ["Send json"]
    assert "signature" in one.record(None).reason
    assert kinds(drive(sending(), request(), FAR, 200)[0]) == ["Write", "Send json+gzip"]


def at(path: str) -> httpx2.Request:
    return httpx2.Request("POST", f"{ORIGIN}{path}", json={"model": "m", "prompt": TEXT})


def test_what_one_address_was_found_to_take_says_nothing_of_another_of_the_same_origin() -> None:
    drive(sending(), at("/gateway/one-secret/chat/completions"), FAR, 415, 200)

    elsewhere, _ = drive(sending(), at("/gateway/two-secret/chat/completions"), FAR, 200)
    again, _ = drive(sending(), at("/gateway/one-secret/chat/completions?version=2"), FAR, 200)

    assert kinds(elsewhere) == ["Write", "Send json+gzip"]
    assert kinds(again) == ["Send json"]
    assert "secret" not in str(verdicts._known)


ALL: tuple[Any, ...] = ("json+gzip", "msgpack+gzip", "msgpack")


def test_an_application_meets_two_errors_at_most_however_many_forms_there_are() -> None:
    ended = [drive(sending(forms=ALL), request(), FAR, 500)[0] for _ in range(4)]

    assert [kinds(steps)[-1] for steps in ended] == ["Send json+gzip"] * 2 + ["Send json"] * 2


def test_a_firewall_that_forbids_encoded_bodies_does_so_twice_at_most() -> None:
    ended = [drive(sending(forms=ALL), request(), FAR, 403) for _ in range(3)]

    assert [(kinds(steps)[-1], status) for steps, status in ended] == [
        ("Send json+gzip", 403),
        ("Send json+gzip", 403),
        ("Send json", 403),
    ]


def test_a_server_that_has_lost_the_prompt_in_one_form_is_sent_none_of_the_others() -> None:
    one = sending(forms=ALL)
    drive(one, request(), FAR, 200)

    one.ended(3)

    assert kinds(drive(sending(forms=ALL), request(), FAR, 200)[0]) == ["Send json"]


def test_a_refusal_that_the_http_client_raises_is_one() -> None:
    asked = request()
    refused = httpx2.HTTPStatusError("415", request=asked, response=httpx2.Response(415))

    steps, status = drive(sending(), asked, FAR, refused, 200)
    again, _ = drive(sending(), asked, FAR, 200)

    assert (kinds(steps), status) == (["Write", "Send json+gzip", "Send json"], 200)
    assert kinds(again) == ["Send json"]


def test_a_media_type_that_is_none_costs_no_call() -> None:
    encode = Encode(forms=("msgpack+gzip",), known=True, msgpack_type="a/b\r\nx-more: c")
    wrong: list[str] = []
    one = Sending(
        encode, origin=ORIGIN, endpoint="/chat/completions", model="m", went_wrong=lambda *what: wrong.append(what[1])
    )

    steps, _ = drive(one, request(), FAR, 200)

    assert kinds(steps) == ["Write", "Send json"]
    record = one.record(None)
    assert (record.form, record.sent_bytes) == ("json", record.plain_bytes)
    assert wrong == ["encode"]


def give_up(one: Sending) -> None:
    """Begin to send and be cancelled before there is an answer."""
    steps = one.steps(request(), lambda _: FAR)
    step = next(steps)
    while isinstance(step, Write):
        step = steps.send(step.run())
    assert isinstance(step, Send)
    with pytest.raises(asyncio.CancelledError):
        steps.throw(asyncio.CancelledError())


@pytest.mark.parametrize(("seconds", "form"), [(0.1, "json+gzip"), (5, "json")])
def test_a_server_that_hangs_until_the_application_gives_up_is_found_out(
    seconds: float, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0]

    def now_ns() -> int:
        clock[0] += round(seconds * 1e9)
        return clock[0]

    monkeypatch.setattr(_sending, "now_ns", now_ns)
    for _ in range(3):
        give_up(sending())
    assert kinds(drive(sending(), request(), FAR, 429)[0])[-1] == "Send json+gzip"

    give_up(sending())

    assert kinds(drive(sending(), request(), FAR, 200)[0])[-1] == f"Send {form}"


def test_calls_that_are_given_up_between_others_that_are_answered_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**15, 10**10))
    monkeypatch.setattr(_sending, "now_ns", lambda: next(clock))

    for _ in range(10):
        give_up(sending())
        assert kinds(drive(sending(), request(), FAR, 200)[0])[-1] == "Send json+gzip"


def test_a_server_that_is_slow_to_say_what_it_takes_is_not_asked_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    monkeypatch.setattr(_sending, "now_ns", lambda: clock[0])
    one = sending(known=False, probe=True)
    steps = one.steps(request(), lambda _: FAR)
    step, asked = next(steps), 0
    while isinstance(step, Ask):
        clock[0] += 4 * 10**9  # a body that dribbles in, of an answer that says something else each time
        asked += 1
        step = steps.send(Answer(400, b'{"error": "broken"}' if asked == 3 else b'{"error": "Bad Request"}'))

    assert isinstance(step, Send)
    assert step.form == "json"
    assert asked == 2
    assert "too long" in one.record(None).reason


def test_a_call_that_was_never_sent_says_so() -> None:
    assert sending().record(None).reason == "Nothing was sent."


def test_what_another_call_has_found_out_in_the_meantime_is_not_asked_again() -> None:
    one = sending(known=False, probe=True)

    def path(_: Any) -> Path:
        verdicts.put(Key(ORIGIN, "/v1/chat/completions", "json+gzip"), "accepted", "It was asked.")
        return FAR

    assert isinstance(next(one.steps(request(), path)), Write)
    assert not one.record(None).probed


@pytest.mark.parametrize(("prompt", "last"), [(TEXT[:3_000], "Send json+gzip"), (TEXT, "Send json")])
def test_few_tokens_of_a_short_prompt_mean_nothing(prompt: str, last: str) -> None:
    slow: dict[str, Any] = {"min_bytes": 0, "uplink_bytes_per_s": 1e3}
    one = sending(**slow)
    drive(one, request(prompt=prompt), FAR, 200)

    one.ended(40)

    assert kinds(drive(sending(**slow), request(prompt=prompt), FAR, 200)[0])[-1] == last
