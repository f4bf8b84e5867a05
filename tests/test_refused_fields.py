"""Which fields an error of a provider names."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given, strategies as st

import fastlane
from fastlane.engine.refused_fields import Refusals, RefusingUpstream, _named

FIELDS = ("max_tokens", "stream", "stream_options", "stop", "text", "temperature", "prompt_cache_key")
BODY: dict[str, Any] = dict.fromkeys(FIELDS, 1) | {"model": "m", "messages": [], "max_tokens": 4_000}


def error_of(error: Any, status: int = 400) -> openai.APIStatusError:
    """What openai's client makes of an error's body."""
    content = error if isinstance(error, str) else json.dumps(error)
    response = httpx2.Response(status, text=content, request=httpx2.Request("POST", "https://example.com"))
    with fastlane.OpenAI(api_key="sk-test") as client:
        return client._make_status_error_from_response(response)


def openai_error(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


@pytest.mark.parametrize(
    ("error", "named"),
    [
        # OpenAI and Azure
        (openai_error("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.", "max_tokens"), "max_tokens"),
        (openai_error("Unrecognized request argument supplied: stream_options"), "stream_options"),
        (openai_error("Unsupported value: 'stream' does not support true with this model.", "stream"), "stream"),
        (openai_error("Your organization must be verified to stream this model.", "stream"), "stream"),
        (openai_error("'stream_options' is for 'stream' alone.", "stream_options"), "stream_options"),
        (openai_error("Unknown parameter: 'stream_options.include_usage'.", "stream_options.x"), "stream_options"),
        (openai_error("4010 tokens (10 in the messages, 4000 in the completion).", "messages"), "max_tokens"),
        # Groq, Cerebras
        (openai_error("property 'prompt_cache_key' is unsupported"), "prompt_cache_key"),
        (openai_error("body.stop: property 'body.stop' is unsupported", "validation_error"), "stop"),
        # vLLM, FastAPI, Mistral
        (
            {"object": "error", "code": 400, "param": None, "message": "[{'type': 'extra_forbidden', 'loc': ('body', "
             "'stream_options'), 'msg': 'Extra inputs are not permitted', 'input': {'include_usage': True}}]"},
            "stream_options",
        ),
        ({"detail": [{"loc": ["body", "stop"], "msg": "no", "input": {"stream": 1}}]}, "stop"),
        # Google, DeepSeek, Bedrock
        ([{"error": {"code": 400, "message": 'Invalid JSON payload. Unknown name "text": no field.'}}], "text"),
        ({"error": {"message": "unknown field `stream_options`, expected one of `model`, `input`"}}, "stream_options"),
        ({"message": "extraneous key [temperature] is not permitted"}, "temperature"),
        # Others
        ({"error": "Streaming is not supported for this model"}, "stream"),
        ({"error": "This model does not support streaming."}, "stream"),
        ("temperature is not supported with this model", "temperature"),
        ("unsupported: stream=true", "stream"),
        ("The stop parameter is not allowed here.", "stop"),
    ],
)  # fmt: skip
def test_error_message_names_a_delimited_field(error: Any, named: str) -> None:
    assert _named(error_of(error), BODY, FIELDS) == (named,)


@pytest.mark.parametrize(
    "error",
    [
        "Bad request",
        openai_error("Please stop sending requests of this size."),
        openai_error("We could not stream the response: the text is too long."),
        openai_error("The text of message 3 is empty, so there is nothing to stop at."),
        openai_error("Invalid value: 'text'. Supported values are: 'input_text'.", "messages[0].content[0].type"),
        openai_error("Invalid 'messages[2].text'", "messages[2].text"),
        openai_error("The model 'stop' does not exist", "model", "model_not_found"),
        openai_error("This model's context has 128000 tokens, and 140000 were sent.", code="context_length_exceeded"),
        {"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": BODY}]},
        openai_error("the upstream's max_tokenserver and my_stream_options_2 are gone"),
    ],
)
def test_error_names_no_field_by_an_english_word(error: Any) -> None:
    assert _named(error_of(error), BODY, FIELDS) == ()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_error_of_any_form_is_read_without_failing(error: Any) -> None:
    assert set(_named(error_of(error), BODY, FIELDS)) <= set(FIELDS)


def test_refusals_of_many_upstreams_are_forgotten() -> None:
    known = Refusals()
    for number in range(3_000):
        known.add(RefusingUpstream("https://example.com:443", f"m{number}", b""), ["stream"])

    assert len(known._until_ns) == 1_024
    assert known._until_ns.get(RefusingUpstream("https://example.com:443", "m2999", b"")) is not None
