"""What a warm call does not do: openai's work on each request, answer and chunk, which the client does once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import fastlane
from tests.contract.entry_points import CHAT, RESPONSE, STREAMED
from tests.waiting import Form

SLOW = {
    "BaseClient._build_headers",
    "BaseClient._build_request",
    "BaseClient._maybe_override_cast_to",
    "BaseClient._prepare_url",
    "FinalRequestOptions.construct",
    "SSEDecoder.decode",
    "_transform_recursive",
    "_async_transform_recursive",
    "BaseModel.construct",
    "Headers.update",
    "URL.__init__",
}
"""Functions of openai and httpx2 that stock clients run for each call or chunk."""

TOOL = {"type": "function", "function": {"name": "depth_of", "parameters": {"type": "object", "properties": {}}}}
HEADERS = {"User-Agent": "a framework", "x-tenant": "a"}
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Name a river."}]}]
CALLS: dict[str, Callable[[Any], Any]] = {
    "chat": lambda client: client.chat.completions.create(**CHAT),
    "tools": lambda client: client.chat.completions.create(**CHAT, tools=[TOOL], temperature=0.5),
    "parts": lambda client: client.chat.completions.create(**{**CHAT, "messages": PARTS}),
    "options": lambda client: client.chat.completions.create(**CHAT, extra_headers=HEADERS, timeout=5),
    "further fields": lambda client: client.chat.completions.create(**CHAT, extra_body={"top_k": 3}),
    "changed client": lambda client: client.with_options(max_retries=1, timeout=5).chat.completions.create(**CHAT),
    "raw response": lambda client: client.chat.completions.with_raw_response.create(**CHAT).parse(),
    "streamed": lambda client: client.chat.completions.create(**STREAMED).close(),
    "response": lambda client: client.responses.create(**RESPONSE),
}


def run_by(act: Callable[[], Any]) -> Counter[str]:
    """How often each function of the client and of what it is built on runs in this thread."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if event == "call" and package in {"fastlane", "openai", "httpx2", "pydantic"}:
            found[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_warm_call_does_no_work_of_openai_again(form: Form, arguments: dict[str, Any], name: str) -> None:
    with form.make(fastlane, **arguments) as client:
        first = run_by(lambda: CALLS[name](client))
        for _ in range(3):
            CALLS[name](client)
        warm = run_by(lambda: CALLS[name](client))

    assert SLOW & first.keys()
    assert SLOW & warm.keys() == set()


def test_chunk_of_a_stream_runs_three_functions(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        list(client.chat.completions.create(**STREAMED))
        chunks = iter(client.chat.completions.create(**STREAMED))
        for _ in range(3):  # the first token has more to do
            next(chunks)
        counted = run_by(lambda: next(chunks))
        list(chunks)

    assert counted == {"Stream.__iter__": 1, "read_events": 1, "AnswerState.event": 1}
