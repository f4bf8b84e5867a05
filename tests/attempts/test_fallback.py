"""Where a model fails before anything of its answer was handed out, the next one answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter_ns as now_ns
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Routing
from fastlane.catalog import Catalog
from fastlane.knowledge.sightings import Sighting
from tests.attempts.scripted import (
    EVENTS,
    NO_ANSWERS,
    Asked,
    Script,
    Upstream,
    answer,
    answer_after,
    answer_without_content,
    break_off,
    break_off_after,
    break_off_before,
    chunk,
    fail_in_the_stream,
    keep_alive,
    model_at,
    refuse,
    routing,
    say_nothing,
)
from tests.session_play import SessionPlay

FAILURES: dict[str, tuple[Script, str]] = {
    "500": (refuse(500), "server"),
    "503": (refuse(503), "server"),
    "429": (refuse(429, ("retry-after", "30")), "rate_limit"),
    "401": (refuse(401), "denied"),
    "403": (refuse(403), "denied"),
    "404": (refuse(404), "denied"),
    "408": (refuse(408), "timeout"),
    "409": (refuse(409), "server"),
    "498": (refuse(498), "rate_limit"),
    "529": (refuse(529), "server"),
    "too long": (refuse(400, code="context_length_exceeded"), "too_long"),
    "too long a text": (refuse(400, code="string_above_max_length"), "too_long"),
    "reset": (break_off, "connection"),
    "reset before it begins": (break_off_before, "connection"),
    "empty": (answer_without_content, "empty"),
    "a page": (NO_ANSWERS["a page"], "server"),
    "error event": (fail_in_the_stream, "server"),
    "silent": (say_nothing, "timeout"),
    "keep-alive": (keep_alive, "timeout"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("failure", FAILURES)
def test_next_model_answers_if_the_first_fails(
    failure: str, kind: str, stream: bool, near: Upstream, far: Upstream
) -> None:
    script, why = FAILURES[failure]
    near.scripts.append(script)
    # Only where time is what fails is there little of it: a busy machine needs some for any answer.
    with Asked(kind, near.url, routing(near, far, first_token_timeout_s=0.1 if why == "timeout" else 20.0)) as asked:
        asked.warm(near, far)
        assert asked.text(stream=stream).strip() == "from far"
        record = asked.record
    routed = record.routing
    assert (routed.chosen, routed.model, routed.reason) == ("near", "far", "fastest")
    assert [(one.model, one.why) for one in routed.fallbacks] == [("near", why)]
    assert [(one.kind, one.model) for one in record.attempts] == [("first", "near-1"), ("fallback", "far-1")]
    assert (record.outcome, record.model, record.origin) == ("completed", "far-1", far.url.removesuffix("/v1"))
    assert (len(near.asked), len(far.asked)) == (1, 1)


UNTRIED: dict[str, tuple[Script, dict[str, Any], dict[str, Any], type[Exception]]] = {
    "wrong call, 400": (refuse(400), {}, {}, openai.BadRequestError),
    "wrong call, 413": (refuse(413), {}, {}, openai.APIStatusError),
    "wrong call, 422": (refuse(422), {}, {}, openai.UnprocessableEntityError),
    "a file is not there": (refuse(404, code="not_found", param="messages[0].file_id"), {}, {}, openai.NotFoundError),
    "something was shown": (break_off_after("Rhi"), {}, {"stream": True}, openai.APIError),
    "a plain model": (refuse(500), {}, {"model": "gpt-5.4"}, openai.InternalServerError),
    "no fallbacks": (refuse(500), {"fallbacks": 0}, {}, openai.InternalServerError),
}


@pytest.mark.parametrize("scene", UNTRIED)
def test_no_other_model_is_tried(scene: str, kind: str, near: Upstream, far: Upstream) -> None:
    near.usually, settings, call, error = UNTRIED[scene]
    near.may_break.set()
    with Asked(kind, near.url, routing(near, far, **settings)) as asked, pytest.raises(error):
        asked.text(**call)
    assert far.asked == []
    assert asked.record.outcome == "failed"
    assert (asked.record.routing is None) == ("model" in call)


def answer_when_set(upstream: Upstream, stream: Any, body: dict[str, Any]) -> None:
    upstream.may_break.wait(20)
    answer("from far")(upstream, stream, body)


def among(*upstreams: Upstream) -> fastlane.Routing:
    models = [model_at(one, first_token_s=time_s) for one, time_s in zip(upstreams, (0.01, 0.5, 0.9), strict=True)]
    return fastlane.Routing(Catalog(models=models), exploration=0.0, first_token_timeout_s=20.0)


def half_open(play: fastlane.Routing, upstream: Upstream) -> None:
    """It has failed, and long enough ago to be tried."""
    failure = Sighting(model="far-1", origin=upstream.url.removesuffix("/v1"), failure="server")
    for _ in range(2):
        play.knowledge.router.note(failure, now_ns() - 10 * 10**9)


def until_asked(upstream: Upstream, by: threading.Thread) -> None:
    while not upstream.asked:
        assert by.is_alive()
        by.join(0.001)


def test_half_open_upstream_gets_one_fallback_at_a_time(near: Upstream, far: Upstream) -> None:
    """While one call probes a half-open upstream, the next fallback goes to another."""
    near.usually, far.scripts = refuse(500), [answer_when_set]
    with Upstream("farther") as farther:
        play = among(near, far, farther)
        half_open(play, far)
        with Asked("sync", near.url, play) as asked:
            first = threading.Thread(target=asked.text)
            first.start()
            until_asked(far, first)
            assert asked.text().strip() == "from farther"
            far.may_break.set()
            first.join()

    assert (len(far.asked), len(farther.asked)) == (1, 1)


@pytest.mark.parametrize("why", ["a play refuses", "the queue is full"])
def test_unsent_probe_of_half_open_breaker_is_released(why: str, near: Upstream, far: Upstream) -> None:
    """The fallback to a half-open upstream ends before anything is sent: it may not keep others away."""

    @dataclass(frozen=True, kw_only=True)
    class Refusing(SessionPlay):
        def plan(self, call: fastlane.Call) -> fastlane.Call:
            if call.model == "far-1":
                raise fastlane.CallRefusedError("not there")
            return call

    near.usually, far.usually = refuse(500), answer_when_set
    with Upstream("farther") as farther:
        play = among(near, far, farther)
        second = Refusing() if why == "a play refuses" else fastlane.Urgency(max_concurrency=1, max_wait_s=0)
        with Asked("sync", near.url, play, second) as asked:
            before = threading.Thread(target=asked.text)
            if why == "the queue is full":
                before.start()
                until_asked(far, before)
            half_open(play, far)
            assert asked.text().strip() == "from farther"
            model = model_at(far, first_token_s=0.5)
            assert [play.knowledge.router.admit(model, now_ns()) for _ in range(2)] == [True, False]
            far.may_break.set()
            if before.ident is not None:
                before.join()


def test_unknown_catalog_model_is_logged_once(near: Upstream, far: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    near.usually = refuse(404)
    with Asked("sync", near.url, routing(near, far)) as asked:
        for _ in range(2):
            asked.text()
    logged = [record.getMessage() for record in caplog.records if record.name == "fastlane"]
    assert len(logged) == 1
    assert "'near' of the catalog answered 404" in logged[0]
    assert "sk-" not in logged[0]


def test_field_that_was_refused_is_not_sent_again(near: Upstream, far: Upstream) -> None:
    near.scripts = [refuse(400, param="temperature")]
    with Asked("sync", near.url, routing(near, far)) as asked:
        assert asked.text(temperature=0.5).strip() == "from near"
        assert asked.text(temperature=0.5).strip() == "from near"
        changes = asked.record.changes
    assert ["temperature" in body for body in near.asked] == [True, False, False]
    assert any("near-1 has refused before" in change for change in changes)


def test_last_error_is_raised_if_every_model_fails(kind: str, near: Upstream, far: Upstream) -> None:
    near.usually, far.usually = refuse(500), refuse(503)
    with Asked(kind, near.url, routing(near, far)) as asked, pytest.raises(openai.InternalServerError) as raised:
        asked.text()
    assert raised.value.status_code == 503
    assert raised.value.__notes__ == ["Tried before: near (server)."]
    record = asked.record
    assert [one.status_code for one in record.attempts] == [500, 503]
    assert record.routing.model is None


def test_last_model_gets_the_retries_of_the_caller(kind: str, near: Upstream, far: Upstream) -> None:
    near.usually = refuse(500)
    far.scripts.append(refuse(500, ("retry-after-ms", "1")))
    with Asked(kind, near.url, routing(near, far), max_retries=1) as asked:
        assert asked.text().strip() == "from far"
    assert [one.kind for one in asked.record.attempts] == ["first", "fallback", "retry"]
    assert len(near.asked) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_one_deadline_holds_for_all_attempts(kind: str, stream: bool, near: Upstream, far: Upstream) -> None:
    near.usually = far.usually = say_nothing
    play = routing(near, far, first_token_timeout_s=0.5, deadline_s=1.2)
    with Asked(kind, near.url, play, max_retries=5) as asked, pytest.raises(openai.APITimeoutError):
        asked.warm(near, far).text(stream=stream)
    record = asked.record
    assert record.duration_s >= 1.19
    assert (len(near.asked), len(far.asked)) == (1, 1)
    assert record.attempts[0].given_up == "late"


def test_deadline_ends_the_wait_for_a_slot(kind: str, near: Upstream) -> None:
    near.usually = break_off_after("Rhine")  # and not before the waiting call has ended
    play = Routing(Catalog(models=(model_at(near, first_token_s=0.01),)), exploration=0.0, deadline_s=0.3)
    with Asked(kind, near.url, play, fastlane.Urgency(max_concurrency=1)) as asked:
        stream = asked.warm(near).opened("fastlane/auto")
        with pytest.raises(fastlane.QueueTimeoutError, match=r"it may wait 0"):  # and not the read timeout
            asked.text(timeout=20)
        stream.close()
    assert len(near.asked) == 1


def test_deadline_does_not_cut_a_started_stream(kind: str, near: Upstream, far: Upstream) -> None:
    def slowly(upstream: Upstream, stream: Any, body: dict[str, Any]) -> None:
        stream.head(200, (EVENTS,))
        stream.data(chunk("m", {"content": "Rhine"}))
        stream.hold_for(0.3)
        stream.data(chunk("m", {"content": " flows"}, "stop") + b"data: [DONE]\n\n", end=True)

    near.usually = slowly
    with Asked(kind, near.url, routing(near, far, deadline_s=0.25)) as asked:
        assert asked.warm(near).text(stream=True) == "Rhine flows"


def test_open_breaker_skips_a_failing_model(kind: str, near: Upstream, far: Upstream) -> None:
    near.usually = refuse(500)
    with Asked(kind, near.url, routing(near, far)) as asked:
        for _ in range(12):
            assert asked.text().strip() == "from far"
        record = asked.record
    assert len(near.asked) < 8
    assert record.routing.chosen == "far"


def test_route_without_routing_play_names_the_remedy(near: Upstream) -> None:
    with (
        Asked("sync", near.url) as asked,
        pytest.raises(fastlane.ConfigurationError, match=r"plays=\[Routing\(catalog\)\]"),
    ):
        asked.text()
    assert near.asked == []


def test_first_token_timeout_does_not_apply_to_last_model(kind: str, near: Upstream, far: Upstream) -> None:
    near.usually = refuse(500)
    far.usually = answer_after(0.25, "at last")
    with Asked(kind, near.url, routing(near, far, first_token_timeout_s=0.1)) as asked:
        assert asked.warm(near, far).text(stream=True) == "at last"


def test_forced_streaming_continues_after_unrelated_400(kind: str, near: Upstream, far: Upstream) -> None:
    """A 400 that names no field, and one that names ours though the call fails without it too."""
    near.scripts = [refuse(400), refuse(400, param="stream"), refuse(400)]
    with Asked(kind, near.url, routing(near, far)) as asked:
        for _ in range(2):
            with pytest.raises(openai.BadRequestError):
                asked.text()
        assert asked.text().strip() == "from near"

    assert [body.get("stream") for body in near.asked] == [True, True, None, True]
    assert far.asked == []
