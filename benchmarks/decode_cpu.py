"""What decoding costs: CPU of the stock client's path and of ours from the same bytes to equal objects, paired.

Inside: from the bytes of one JSON document to the typed object. For the stock client that is `json.loads` and
`construct_type`, as `_process_response_data` calls it; for ours the decoder. Both decode the
same document several times a round, keep the last object and let go of the one before it, as an application does that
uses what it gets: with nothing kept, what the embeddings' ratio says depends on whether the allocator happened to
give its memory back to the system in between. `single_embeddings` is one document a round, right after the other side
has been through the caches. Outside: the network, the splitting of a stream into events, and garbage collection,
which is off on both sides and done between rounds: where an answer makes tens of thousands of objects, as log-
probabilities do, an application pays for collections that neither side here does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from openai._models import construct_type
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from benchmarks._paired import cpu_pairs, median, paired
from benchmarks._report import Figure, Report
from fastlane.decode import answer_decoder, event_decoder

_USAGE = {
    "prompt_tokens": 812, "completion_tokens": 61, "total_tokens": 873,
    "prompt_tokens_details": {"cached_tokens": 640, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0,
                                  "rejected_prediction_tokens": 0},
}  # fmt: skip


class _Case(NamedTuple):
    """One kind of document, and how often it is decoded in one round."""

    cast_to: Any
    document: dict[str, Any]
    repeats: int
    event: bool


def _chunk(**more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-CeVxGk4vYBnQ2tFvWwJ8", "object": "chat.completion.chunk", "created": 1763600000,
        "model": "gpt-4.1-mini-2025-04-14", "service_tier": "default", "system_fingerprint": "fp_4fce0778af",
        "choices": [{"index": 0, "delta": {"content": " token"}, "logprobs": None, "finish_reason": None}],
        "usage": None, "obfuscation": "Vq3KxT0aZ9", **more,
    }  # fmt: skip


def _completion(message: dict[str, Any], logprobs: Any = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-CeVxGk4vYBnQ2tFvWwJ8", "object": "chat.completion", "created": 1763600000,
        "model": "gpt-4.1-mini-2025-04-14", "service_tier": "default", "system_fingerprint": "fp_4fce0778af",
        "choices": [{"index": 0, "message": {"role": "assistant", "refusal": None, "annotations": [], **message},
                     "logprobs": logprobs, "finish_reason": "stop"}],
        "usage": _USAGE,
    }  # fmt: skip


def _call(number: int) -> dict[str, Any]:
    arguments = json.dumps({"origin": "ZRH", "destination": "OSL", "date": f"2026-11-{number:02}", "cabin": "economy"})
    return {"id": f"call_{number}", "type": "function", "function": {"name": "search_flight", "arguments": arguments}}


def _log_probability(token: int) -> dict[str, Any]:
    return {"token": f" t{token}", "logprob": -0.001 * token, "bytes": [32, 116, 49]}


def _response(**input_details: int) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "Two flights leave.", "annotations": [], "logprobs": []}]}  # fmt: skip
    calls = [{"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}", "status": "completed",
              "name": "search_flight", "arguments": "{}"} for number in range(3)]  # fmt: skip
    tool = {"type": "function", "name": "search_flight", "description": "Find flights", "strict": True, "parameters": {
        "type": "object", "properties": {"origin": {"type": "string"}}, "additionalProperties": False}}  # fmt: skip
    return {
        "id": "resp_1", "object": "response", "created_at": 1763600000, "status": "completed", "error": None,
        "incomplete_details": None, "instructions": "Be brief.", "metadata": {}, "model": "gpt-4.1-mini",
        "output": [{"id": "rs_1", "type": "reasoning", "summary": []}, message, *calls], "parallel_tool_calls": True,
        "temperature": 1.0, "tool_choice": "auto", "tools": [tool] * 3, "top_p": 1.0, "store": True,
        "text": {"format": {"type": "text"}}, "truncation": "disabled", "usage": {
            "input_tokens": 812, "input_tokens_details": {"cached_tokens": 640, **input_details}, "output_tokens": 61,
            "output_tokens_details": {"reasoning_tokens": 8}, "total_tokens": 873},
    }  # fmt: skip


def _embeddings(vector: Any) -> dict[str, Any]:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(16)]
    usage = {"prompt_tokens": 160, "total_tokens": 160}
    return {"object": "list", "data": data, "model": "text-embedding-3-small", "usage": usage}


_VECTOR = [round(math.sin(index) / 32, 9) for index in range(1536)]
_CASES = {
    "chunk": _Case(ChatCompletionChunk, _chunk(), 200, event=True),
    "nonconforming_chunk": _Case(ChatCompletionChunk, _chunk(service_tier="on_demand"), 200, event=True),
    "text_delta": _Case(ResponseStreamEvent, {
        "type": "response.output_text.delta", "sequence_number": 9, "item_id": "msg_68f1", "output_index": 0,
        "content_index": 0, "delta": " token", "logprobs": [], "obfuscation": "Vq3KxT0aZ9"}, 200, event=True),
    "completion": _Case(ChatCompletion, _completion({"content": "Yes, it is."}), 100, event=False),
    "tool_calls": _Case(ChatCompletion, _completion({
        "content": None, "tool_calls": [_call(1), _call(2), _call(3)]}), 100, event=False),
    "response": _Case(Response, _response(cache_write_tokens=0), 50, event=False),
    # What newer versions of openai require and most providers do not send.
    "nonconforming_response": _Case(Response, _response(), 50, event=False),
    "embeddings": _Case(CreateEmbeddingResponse, _embeddings(_VECTOR), 5, event=False),
    "single_embeddings": _Case(CreateEmbeddingResponse, _embeddings(_VECTOR), 1, event=False),
    "base64_embeddings": _Case(CreateEmbeddingResponse, _embeddings("AAAAvA" * 1366), 20, event=False),
    "logprobs": _Case(ChatCompletion, _completion({"content": "x"}, {"refusal": None, "content": [
        _log_probability(token) | {"top_logprobs": [_log_probability(other) for other in range(5)]}
        for token in range(1000)]}), 3, event=False),
}  # fmt: skip


def _arms(case: _Case) -> list[Callable[[], None]]:
    cast_to, data = case.cast_to, json.dumps(case.document, separators=(",", ":")).encode()
    decode = event_decoder(cast_to) if case.event else answer_decoder(cast_to)
    if decode is None or decode(data) != construct_type(type_=cast_to, value=json.loads(data)):
        raise SystemExit(f"nothing to measure: {cast_to} is not decoded here, or not alike")
    text = data.decode()
    kept: list[Any] = [None, None]

    def stock() -> None:
        for _ in range(case.repeats):
            kept[0] = construct_type(type_=cast_to, value=json.loads(text))

    def ours() -> None:
        for _ in range(case.repeats):
            kept[1] = decode(data)

    return [stock, ours]


def measure(quick: bool) -> Report:
    """Measure every case, the stock client and ours in turn."""
    figures: dict[str, Figure] = {}
    for name, case in _CASES.items():
        pairs = 30 if quick else 100
        stock, ours = ([taken / 1e3 / case.repeats for taken in arm] for arm in cpu_pairs(_arms(case), pairs))
        figures |= {
            f"{name}_stock_us": median(stock).value,
            f"{name}_us": median(ours).value,
            **paired(name, stock, ours),
        }
    return Report(
        figures=figures,
        reach={"tool_calls_ratio": ">= 8", "embeddings_ratio": ">= 30"},
        conditions={"pairs": pairs},
    )
