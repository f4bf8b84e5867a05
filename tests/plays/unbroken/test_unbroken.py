"""The play `Unbroken`, through clients of both kinds and over real TLS: what an application sees of a broken stream."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import openai
import pytest
from hypothesis import given, strategies as st

import fastlane
from fastlane import Connection, Unbroken
from fastlane.emulator import Emulator, Server as VirtualServer, preset
from fastlane.plays import Hedging, RateLimits, RequestEncoding
from fastlane.plays.unbroken.section import StreamPart, UnbrokenSection
from fastlane.providers import ProviderFacts, registered
from tests.plays.facts import fact
from tests.prepared_server import LIBRARY, Server
from tests.virtual_time import in_virtual_time
from tests.waiting import SYNC, Form

CONTINUING = ProviderFacts(slug="continuing", continued_by=fact("prefix"))
MESSAGES: list[Any] = [{"role": "user", "content": "Review this."}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}]
PATIENT = Unbroken(min_stall_s=0.5, max_stall_s=1.0, max_thinking_s=1.0)
CONTINUED = replace(PATIENT, on_break="continue")
BREAKS = ("drop", "reset", "truncate")
_tags = itertools.count()


class Seen(NamedTuple):
    """What an application has seen of one stream."""

    text: str
    events: list[Any]
    section: UnbrokenSection
    record: fastlane.CallRecord

    @property
    def how(self) -> list[str | None]:
        return [part.how for part in self.section.parts]


@pytest.fixture
def emulator(provider: Emulator) -> Iterator[Emulator]:
    with registered(CONTINUING, origins=[provider.base_url.removesuffix("/v1")]):
        yield provider


def client_of(emulator: Any, form: Form = SYNC, play: Unbroken = CONTINUED, *plays: Any, **options: Any) -> Any:
    options = {"base_url": emulator.base_url, "api_key": "any", **options}
    return form.make(fastlane, **options, only_plays=[Connection(), play, *plays])


@asynccontextmanager
async def virtual_client(play: Unbroken, **model: Any) -> AsyncIterator[Any]:
    """A client for virtual time, of a provider whose model is changed so."""
    async with VirtualServer(model=replace(preset("instant"), **model), tls=False) as server:
        options: Any = {"base_url": server.base_url, "api_key": "any", "only_plays": [Connection(), play]}
        async with fastlane.AsyncOpenAI(**options, timeout=1_000.0) as client:
            yield client


def asked(*faults: str, **wishes: object) -> dict[str, str]:
    """Headers that ask the emulator for faults, which strike once, and for an answer of 20 tokens."""
    wishes = {"output_tokens": 20, "tag": f"unbroken {next(_tags)}", **wishes}
    if faults:
        wishes["fault"] = ",".join(fault if "times" in fault else f"{fault};times=1" for fault in faults)
    return {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in wishes.items()}


def seen(client: Any, events: list[Any]) -> Seen:
    texts = [event.delta if hasattr(event, "delta") else "" for event in events if is_text(event)]
    for event in events:
        texts += [choice.delta.content or "" for choice in getattr(event, "choices", None) or ()]
    record = client.last_call
    return Seen("".join(texts), events, record.get(UnbrokenSection), record)


def is_text(event: Any) -> bool:
    return getattr(event, "type", None) == "response.output_text.delta"


def chat(client: Any, *faults: str, **options: Any) -> Seen:
    headers = asked(*faults, **options.pop("wishes", {}))
    options = {"stream_options": {"include_usage": True}, "messages": MESSAGES, **options}
    stream = client.chat.completions.create(model="m", stream=True, extra_headers=headers, **options)
    return seen(client, list(stream))


def response(client: Any, *faults: str, background: bool = True, **options: Any) -> Seen:
    headers = asked(*faults, **options.pop("wishes", {}))
    options = {"input": "Review this.", **options}
    stream = client.responses.create(model="m", background=background, stream=True, extra_headers=headers, **options)
    return seen(client, list(stream))


def check_response(found: Seen, whole: Seen) -> None:
    """Check that a response has been resumed without a seam."""
    assert found.text == whole.text
    assert [event.type for event in found.events] == [event.type for event in whole.events]
    assert [event.sequence_number for event in found.events] == list(range(len(whole.events)))
    assert found.record.outcome == "completed"
    assert found.events[-1].response.output_text == whole.text


def check_chat(found: Seen, whole: Seen) -> None:
    """Check that a chat completion reads as one."""
    assert found.text == whole.text
    assert len({(event.id, event.model, event.created) for event in found.events}) == 1
    reasons = [choice.finish_reason for event in found.events for choice in event.choices if choice.finish_reason]
    assert reasons == ["stop"]
    assert sum(bool(choice.delta.role) for event in found.events for choice in event.choices) == 1
    assert [event.usage.completion_tokens for event in found.events if event.usage] == [20]
    assert found.record.outcome == "completed"


# The law: wherever a stream is cut, its text is that of the whole one.


@pytest.mark.parametrize("fault", BREAKS)
def test_background_response_is_whole_wherever_cut(emulator: Emulator, form: Form, fault: str) -> None:
    with client_of(emulator, form) as client:
        whole = response(client)
        size = whole.record.attempts[0].response_body_bytes
        assert size is not None
        how = []
        for position in range(0, size, 211):
            found = response(client, f"{fault};after_bytes={position}")
            check_response(found, whole)
            how += found.how
    assert set(how) == {None, "repeated", "resumed"}


@pytest.mark.parametrize("fault", BREAKS)
def test_chat_is_whole_wherever_cut(emulator: Emulator, form: Form, fault: str) -> None:
    with client_of(emulator, form) as client:
        whole = chat(client)
        size = whole.record.attempts[0].response_body_bytes
        assert size is not None
        how = []
        for position in range(0, size - 600, 197):
            found = chat(client, f"{fault};after_bytes={position}")
            check_chat(found, whole)
            assert [seam > 0 for seam in found.section.seams] == [found.how[1] == "continued"]
            how += found.how
    assert set(how) == {None, "repeated", "continued"}


@given(st.lists(st.integers(0, 19), min_size=1, max_size=3), st.booleans())
def test_stream_cut_several_times_is_whole(running_provider: Emulator, cuts: list[int], is_chat: bool) -> None:
    running_provider.reset()  # another module may have left it with faults
    origin = running_provider.base_url.removesuffix("/v1")
    # All of them strike the first request, and the last two the second one.
    faults = [f"{BREAKS[at]};after={cut};times={at + 1}" for at, cut in enumerate(cuts)]
    with registered(CONTINUING, origins=[origin]), pytest.MonkeyPatch.context() as patch:
        for name, value in running_provider.environment.items():
            patch.setenv(name, value)
        with client_of(running_provider, max_retries=5) as client:
            if is_chat:
                check_chat(chat(client, *faults), chat(client))
            else:
                check_response(response(client, *faults), response(client))


# Stalls


@pytest.mark.parametrize("fault", ["stall;after=9", "stall;after=9,keepalive=0.05"])
def test_stalled_response_is_resumed(emulator: Emulator, form: Form, fault: str) -> None:
    with client_of(emulator, form) as client:
        found = response(client, *fault.split(","))

        check_response(found, response(client))
    assert found.how == [None, "resumed"]
    assert found.section.stalls == 1


def test_stalled_chat_raises_what_was_received(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form, PATIENT) as client:
        whole = chat(client)
        with pytest.raises(openai.APITimeoutError, match="nothing came for") as caught:
            chat(client, "stall;after=9", "keepalive=0.05")
        record = client.last_call

    error = caught.value
    assert isinstance(error, fastlane.StalledStreamError)
    assert error.received.text == whole.text[:36]
    assert error.received.response_id == record.response_id
    assert error.silent_s >= 0.9
    assert whole.text[:36] not in f"{error!r} {error} {error.received!r} {record.to_dict()}"
    assert (record.outcome, record.error) == ("failed", "StalledStreamError")
    assert pickle.loads(pickle.dumps(error)).received == error.received


@in_virtual_time
async def test_stall_is_noticed_by_the_usual_gap() -> None:
    async with virtual_client(Unbroken(min_stall_s=0.1), inter_token_s=0.5) as client:
        create = client.chat.completions.create
        for _ in range(8):
            [_ async for _ in await create(model="m", messages=MESSAGES, stream=True, extra_headers=asked())]
        headers = asked("stall;after=5", "keepalive=0.2")
        with pytest.raises(fastlane.StalledStreamError) as caught:
            [_ async for _ in await create(model="m", messages=MESSAGES, stream=True, extra_headers=headers)]

    assert caught.value.usual_gap_s == pytest.approx(0.5, rel=0.01)
    assert caught.value.silent_s == pytest.approx(1.25, rel=0.01)


@in_virtual_time
async def test_long_thinking_is_no_stall() -> None:
    async with virtual_client(Unbroken(), prefill_base_s=900.0) as client:
        stream = await client.responses.create(
            model="m", input="Think.", reasoning={"effort": "high"}, stream=True, extra_headers=asked("keepalive=9")
        )
        events = [event async for event in stream]
        section = client.last_call.get(UnbrokenSection)

    assert events[-1].type == "response.completed"
    assert section == UnbrokenSection(
        parts=(StreamPart(how=None, at_character=0, input_tokens=4, output_tokens=52),),
        longest_gap_s=section.longest_gap_s,
    )


@in_virtual_time
async def test_slow_application_is_no_stall() -> None:
    async with virtual_client(Unbroken(min_stall_s=0.1, max_stall_s=0.2), inter_token_s=0.1) as client:
        create = client.chat.completions.create
        async for _ in await create(model="m", messages=MESSAGES, stream=True, extra_headers=asked()):
            await asyncio.sleep(0.25)


# Before the first output, and after it


def test_stream_is_repeated_within_its_retries(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form, max_retries=1) as client:
        found = chat(client, "truncate;after=0")
        with pytest.raises(fastlane.BrokenStreamError, match="no retry is left") as caught:
            chat(client, "truncate;after=0;times=2")

    check_chat(found, found)
    assert found.how == [None, "repeated"]
    assert [attempt.kind for attempt in found.record.attempts] == ["first", "retry"]
    assert found.section.parts[0] == StreamPart(
        how=None, at_character=0, error="APIConnectionError", input_tokens=5, output_tokens=0, estimated=True
    )
    assert caught.value.received.text == ""


def test_no_stream_goes_on_without_retries(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form, max_retries=0) as client:
        for make, fault in ((chat, "truncate;after=0"), (chat, "reset;after=9"), (response, "reset;after=9")):
            with pytest.raises(fastlane.BrokenStreamError):
                make(client, fault)
    assert len(emulator.log()) == 3


def test_other_response_is_repeated_only_before_output(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form) as client:
        whole = response(client, background=False)
        check_response(response(client, "reset;after_bytes=1500", background=False), whole)
        with pytest.raises(fastlane.BrokenStreamError) as caught:
            response(client, "reset;after=9", background=False)
    assert caught.value.received.sequence_number == 12
    assert caught.value.received.text == whole.text[:36]


def test_continued_usage_is_of_all_parts(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form) as client:
        found = chat(client, "truncate;after=5", max_tokens=12, wishes={"output_tokens": 20})
        first, second = found.section.parts
        usage = found.events[-1].usage

    assert (first.output_tokens, second.output_tokens) == (5, 7)
    assert usage.prompt_tokens == (first.input_tokens or 0) + (second.input_tokens or 0)
    assert (usage.completion_tokens, usage.estimated) == (12, True)
    assert (found.record.usage.output_tokens, found.record.usage.estimated) == (12, True)
    assert found.section.seams == (20,)
    assert found.record.changes == ("asked to continue the answer after 20 characters",)


WHY_NOT: dict[str, tuple[dict[str, Any], str]] = {
    "several answers": ({"n": 2}, "the answer is not text alone"),
    "log probabilities": ({"logprobs": True}, "the call asks for log probabilities"),
    "structured": ({"response_format": {"type": "json_object"}}, "the answer is structured"),
    "tool": ({"tools": TOOLS, "tool_choice": "required"}, "the answer is not text alone"),
    "reasoning": ({"reasoning_effort": "high"}, "the answer is not text alone"),
    "prefix": (
        {"messages": [*MESSAGES, {"role": "assistant", "content": "I"}]},
        "the request ends with an answer itself",
    ),
}


@pytest.mark.parametrize("case", WHY_NOT)
def test_record_says_why_an_answer_is_not_continued(emulator: Emulator, form: Form, case: str) -> None:
    options, why = WHY_NOT[case]
    with client_of(emulator, form) as client:
        with pytest.raises(fastlane.BrokenStreamError):
            chat(client, "truncate;after=2", **options)  # a reset may discard what was sent
        assert client.last_call.get(UnbrokenSection).why_not == why


def test_unknown_provider_is_not_asked_to_continue(emulator: Emulator) -> None:
    with registered(ProviderFacts(slug="other"), origins=[emulator.base_url.removesuffix("/v1")]):  # noqa: SIM117
        with client_of(emulator) as client, pytest.raises(fastlane.BrokenStreamError, match="not known to continue"):
            chat(client, "truncate;after=5")  # a reset may discard what was sent


# Around the stream


def test_helpers_and_raw_responses_go_on(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form) as client:
        whole = response(client).text
        options = {"model": "m", "input": "Review this."}
        with client.responses.stream(**options, background=True, extra_headers=asked("drop;after=7")) as stream:
            assert stream.get_final_response().output_text == whole
        raw = client.responses.with_raw_response.create(
            **options, background=True, stream=True, extra_headers=asked("drop;after=7")
        )
        assert "".join(event.delta for event in raw.parse() if is_text(event)) == whole
        answer = client.chat.completions.stream(model="m", messages=MESSAGES, extra_headers=asked("drop;after=7"))
        with answer as chunks:
            assert chunks.get_final_completion().choices[0].message.content == chat(client).text
        assert [record.outcome for record in client.calls] == ["completed"] * 5


def test_close_of_the_first_stream_ends_the_last(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form) as client:
        headers = asked("reset;after=3", "truncate;after=6;times=2", output_tokens=5_000, token_ms=5)
        stream = client.responses.create(model="m", input="Hi.", background=True, stream=True, extra_headers=headers)
        for event in stream:
            if event.sequence_number == 15:
                break
        stream.close()

        assert client.last_call.outcome == "closed"
        assert client.last_call.get(UnbrokenSection).breaks == 2
    assert emulator.log()[-1].output_tokens < 5_000


@pytest.mark.parametrize("closed", ["stream", "client"])
def test_stream_closed_in_another_thread_does_not_go_on(emulator: Emulator, closed: str) -> None:
    client = client_of(emulator, play=PATIENT)
    headers = asked("stall;after=3", output_tokens=20)
    stream = client.responses.create(model="m", input="Hi.", background=True, stream=True, extra_headers=headers)
    close = (stream if closed == "stream" else client).close

    def read() -> None:
        for event in stream:
            if event.sequence_number == 4:
                threading.Thread(target=close).start()

    with pytest.raises((openai.APIConnectionError, LIBRARY.ReadError)):
        read()
    client.close()
    assert [record.method for record in emulator.log()] == ["POST"]


def test_other_plays_see_one_call(emulator: Emulator, form: Form) -> None:
    more = (RateLimits(), RequestEncoding(forms=("json+gzip",), min_bytes=0), Hedging())
    with client_of(emulator, form, CONTINUED, *more) as client:
        check_response(response(client, "truncate;after=5"), response(client))
        check_chat(chat(client, "truncate;after=5"), chat(client))
        report = client.report()
    assert "2 of 2 broken streams went on" in str(report)


def test_response_without_numbers_is_not_resumed() -> None:
    server = Server()
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    text = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "Yes"}
    events = [{"type": "response.created", "response": response}, text]
    server.reads = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    server.failure = "ReadError"
    http_client = LIBRARY.Client(transport=server)
    with fastlane.OpenAI(api_key="any", http_client=http_client, only_plays=[PATIENT]) as client:
        stream = client.responses.create(model="m", input="Review this.", background=True, stream=True)
        with pytest.raises(fastlane.BrokenStreamError) as caught:
            list(stream)

    assert caught.value.received.text == "Yes"


def test_break_after_the_last_event_is_no_error(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form) as client:
        whole = chat(client)
        size = whole.record.attempts[0].response_body_bytes
        found = chat(client, f"reset;after_bytes={(size or 0) - 4}")
    assert found.text == whole.text
    assert found.section.why_not == "the answer had ended"
    assert (found.record.outcome, found.record.error) == ("completed", None)


def test_stream_of_two_answers_ends_with_both_or_an_error(emulator: Emulator) -> None:
    with client_of(emulator) as client:
        size = chat(client, n=2).record.attempts[0].response_body_bytes or 0
        ended = []
        for position in range(size - 1_500, size, 150):
            try:
                events = chat(client, f"reset;after_bytes={position}", n=2).events
            except fastlane.BrokenStreamError:
                ended.append(0)
            else:
                ended.append(sum(bool(choice.finish_reason) for event in events for choice in event.choices))
    assert set(ended) <= {0, 2}
    assert 0 in ended
