"""What a probe concludes from what a server says, each server played by a function from a request to an answer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx2
import msgpack  # type: ignore[import-untyped]
import pytest

from fastlane.doctor._form_probe import Answer, ProbeVerdict, probe
from fastlane.plays.request_encoding.bodies import Writing
from fastlane.records.attempts import Form

ENDPOINTS = ("/chat/completions", "/completions", "/responses")

Server = Callable[[httpx2.Request], Answer]


def asked(server: Server, form: Form = "json+gzip", endpoint: str = "/chat/completions") -> tuple[ProbeVerdict, int]:
    """What the probe concludes, and how many requests it took."""
    request = httpx2.Request(
        "POST",
        f"https://api.example.com/v1{endpoint}",
        headers={"Authorization": "Bearer key", "X-Own": "kept"},
        json={"model": "the-model", "messages": [{"role": "user", "content": "a prompt"}]},
    )
    steps = probe(request, endpoint, "the-model", form, Writing())
    answer: Answer | None = None
    count = 0
    while True:
        try:
            each = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            return end.value, count
        count += 1
        assert each.url == request.url
        assert each.headers["authorization"] == "Bearer key"
        assert each.headers["x-own"] == "kept"
        assert int(each.headers["content-length"]) == len(each.content)
        assert b"a prompt" not in each.content
        answer = server(each)


def is_encoded(request: httpx2.Request) -> bool:
    return "content-encoding" in request.headers or "msgpack" in request.headers["content-type"]


def read(request: httpx2.Request) -> Any:
    """The body as an able server reads it. Raises ValueError."""
    body = request.content
    if request.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return msgpack.unpackb(body) if "msgpack" in request.headers["content-type"] else json.loads(body)


def error(status: int, message: str, **more: Any) -> Answer:
    return Answer(status, json.dumps({"error": {"message": message, **more}}).encode())


def checked(body: Any) -> Answer:
    """What a server that checks the prompt first says of a body that it has read."""
    said = body.get("messages", body.get("input", body.get("prompt")))
    for number, each in enumerate(said):
        wrong = next(iter(each)) if "prompt" in body and isinstance(each, dict) else ""
        if isinstance(each, dict) and each.get("role", wrong) not in ("user", ""):
            return error(400, f"Invalid value: '{each.get('role', wrong)}'.", param=f"[{number}]")
    limit = body.get("max_tokens", body.get("max_output_tokens"))
    if not isinstance(limit, int):
        return error(400, f"Invalid type for 'max_tokens': {limit}.")
    return Answer(200, json.dumps({"model": body["model"], "choices": []}).encode())


def quoting(request: httpx2.Request) -> Answer:
    """An able server that quotes what is wrong."""
    try:
        return checked(read(request))
    except ValueError:
        return error(400, "broken JSON")


def model_first(request: httpx2.Request) -> Answer:
    """An able server that looks at the model first."""
    try:
        body = read(request)
    except ValueError:
        return error(400, "broken JSON")
    if body["model"] != "the-model":
        return error(404, f"The model `{body['model']}` does not exist.", code="model_not_found")
    return checked(body)


def terse(request: httpx2.Request) -> Answer:
    """An able server that quotes nothing."""
    try:
        read(request)
    except ValueError:
        return error(400, "broken JSON")
    return error(400, "Model Not Exist", request_id=str(id(request)))


def losing_the_prompt(able: Server) -> Server:
    """A server that reads an encoded body and loses its prompt on the way."""

    def server(request: httpx2.Request) -> Answer:
        if not is_encoded(request):
            return able(request)
        try:
            body = read(request)
        except ValueError:
            return able(request)
        for name in ("messages", "input", "prompt"):
            if name in body:
                body[name] = []
        return able(httpx2.Request("POST", request.url, json=body))

    return server


def plain_only(status: int) -> Server:
    return lambda request: error(status, "what is this?") if is_encoded(request) else quoting(request)


FORMS: tuple[Form, ...] = ("json+gzip", "msgpack", "msgpack+gzip")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_quotes_the_encoded_prompt_has_read_it(form: Form, endpoint: str) -> None:
    judgement, requests = asked(quoting, form, endpoint)

    assert judgement.outcome == "accepted"
    # MessagePack alone could be quoted without having been read.
    assert requests == (3 if form == "msgpack" else 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_says_the_same_of_both_and_not_of_what_it_cannot_read_has_read_both(form: Form) -> None:
    judgement, requests = asked(terse, form)

    assert judgement.outcome == "accepted"
    assert requests == 7


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_looks_at_the_model_first_is_asked_about_the_prompt_too(form: Form, endpoint: str) -> None:
    judgement, requests = asked(model_first, form, endpoint)

    assert judgement.outcome == "accepted"
    assert requests == (5 if form == "msgpack" else 4)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("able", [quoting, model_first])
def test_a_server_that_loses_the_prompt_of_an_encoded_body_is_caught(able: Server, endpoint: str) -> None:
    answered: list[Answer] = []

    def server(request: httpx2.Request) -> Answer:
        answered.append(losing_the_prompt(able)(request))
        return answered[-1]

    assert asked(server, endpoint=endpoint)[0].outcome == "refused"
    assert [answer.status for answer in answered if answer.status == 200] == []  # nothing was generated on the way


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_server_that_looks_at_the_limit_first_is_asked_about_the_prompt_last(endpoint: str) -> None:
    limits: list[Any] = []

    def limit_first(request: httpx2.Request) -> Answer:
        try:
            body = read(request)
        except ValueError:
            return error(400, "broken JSON")
        limit = body.get("max_tokens", body.get("max_output_tokens"))
        limits.append(limit)
        return checked(body) if isinstance(limit, int) else error(400, f"Invalid type for 'max_tokens': {limit}.")

    assert asked(limit_first, endpoint=endpoint)[0].outcome == "accepted"
    assert asked(losing_the_prompt(limit_first), endpoint=endpoint)[0].outcome == "refused"
    # Only the last question could be answered by one that has lost its prompt, with next to nothing.
    assert {limit for limit in limits if isinstance(limit, int)} == {16 if endpoint == "/responses" else 1}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_server_that_takes_any_role_answers_nothing_and_so_bills_nothing(endpoint: str) -> None:
    answered: list[Answer] = []

    def lenient(request: httpx2.Request) -> Answer:
        """Looks at the model, then at the limit, and then whether messages are objects."""
        try:
            body = read(request)
        except ValueError:
            return error(400, "broken JSON")
        if body["model"] != "the-model":
            return error(404, "no such model")
        if not isinstance(body.get("max_tokens", body.get("max_output_tokens")), int):
            return error(400, "no such limit")
        said, kind = (body["prompt"], str) if "prompt" in body else (body.get("messages", body.get("input")), dict)
        if all(isinstance(each, kind) for each in said):
            answered.append(Answer(200, b"{}"))
            return answered[-1]
        return error(400, "no such message")

    judgement, count = asked(lenient, endpoint=endpoint)

    assert (judgement.outcome, count) == ("accepted", 7)
    assert not answered


@pytest.mark.parametrize("status", [400, 404, 406, 413, 415, 422])
def test_a_server_that_answers_something_else_to_an_encoded_body_refuses_it(status: int) -> None:
    judgement, requests = asked(plain_only(status))

    assert judgement.outcome == "refused"
    assert str(status) in judgement.reason
    assert requests == 2


def test_a_server_that_takes_messagepack_for_broken_json_and_quotes_it_has_not_read_it() -> None:
    def server(request: httpx2.Request) -> Answer:
        if is_encoded(request):
            return Answer(400, b"cannot parse: " + request.content)
        return quoting(request)

    assert asked(server, "msgpack")[0].outcome == "refused"


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_that_breaks_on_an_encoded_body_is_not_sent_any(status: int) -> None:
    judgement, requests = asked(plain_only(status))

    assert judgement.outcome == "broken"
    assert requests == 1


@pytest.mark.parametrize("name", ["ReadTimeout", "RemoteProtocolError", "ReadError"])
def test_a_server_that_gives_no_answer_to_an_encoded_body_is_not_sent_any(name: str) -> None:
    def server(request: httpx2.Request) -> Answer:
        return Answer(None, error=name) if is_encoded(request) else quoting(request)

    judgement, requests = asked(server)

    assert judgement.outcome == "broken"
    assert name in judgement.reason
    assert requests == 1


def test_a_server_that_reads_an_encoded_body_as_something_else_is_caught() -> None:
    def server(request: httpx2.Request) -> Answer:
        if is_encoded(request):
            return Answer(200, b'{"choices": [{"message": {"content": "Hello!"}}], "model": "default"}')
        return quoting(request)

    judgement, requests = asked(server)

    assert judgement.outcome == "refused"
    assert requests == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_says_of_no_encoded_body_what_is_wrong_with_it_cannot_be_judged(form: Form) -> None:
    # It says of what is not text what it says of any wrong value, and more about broken JSON.
    def server(request: httpx2.Request) -> Answer:
        try:
            json.loads(request.content)
        except UnicodeDecodeError:
            return error(400, "Bad Request")
        except ValueError:
            return error(400, "Expecting value")
        return error(400, "Bad Request")

    assert asked(server, form)[0].outcome != "accepted"


def test_a_server_that_loses_the_encoded_body_is_caught_by_what_it_misses_in_it() -> None:
    def server(request: httpx2.Request) -> Answer:
        return error(400, "missing: model") if is_encoded(request) else quoting(request)

    assert asked(server)[0].outcome == "refused"


def test_a_server_that_answers_whatever_it_is_asked_cannot_be_judged() -> None:
    def server(request: httpx2.Request) -> Answer:
        return error(400, "?") if is_encoded(request) else Answer(200, b"{}")

    assert asked(server)[0].outcome == "undecided"
    assert asked(lambda request: Answer(200, b"{}"))[0].outcome == "refused"


def test_a_server_that_says_the_same_of_everything_cannot_be_judged() -> None:
    judgement, requests = asked(lambda request: error(400, "Bad Request"))

    assert judgement.outcome == "undecided"
    assert requests == 3


@pytest.mark.parametrize("status", [401, 403, 408, 429])
def test_a_server_that_refuses_the_caller_says_nothing_of_the_body(status: int) -> None:
    judgement, requests = asked(lambda request: error(status, "not you"))

    assert judgement.outcome == "broken"  # for minutes and not for a day: the next key may be a good one
    assert "says nothing of the body" in judgement.reason
    assert requests == 1


def test_a_server_that_breaks_on_the_json_too_cannot_be_judged() -> None:
    def server(request: httpx2.Request) -> Answer:
        return error(400, "bad") if is_encoded(request) else error(500, "worse")

    assert asked(server)[0].outcome == "undecided"


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[" * 5_000, b"null", b"3"])
def test_no_answer_is_too_strange(body: bytes) -> None:
    assert asked(lambda request: Answer(400, body))[0].outcome == "undecided"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_nobody_can_answer_what_a_probe_asks(endpoint: str) -> None:
    bodies: list[Any] = []

    def server(request: httpx2.Request) -> Answer:
        try:
            bodies.append(read(request))
        except ValueError:
            return error(400, "broken JSON")
        return error(400, "Bad Request")

    asked(server, endpoint=endpoint)
    asked(server, endpoint=endpoint)

    assert len({body["model"] for body in bodies}) == 3  # two that do not exist, and the one of the request
    for body in bodies:
        assert checked(body).status == 400
        # One that generates all the same generates next to nothing.
        limit = body.get("max_tokens", body.get("max_output_tokens"))
        assert limit in (1, 16) if isinstance(limit, int) else limit.startswith("fastlane-limit-")
