"""Answers and events as providers of the OpenAI protocol write them: extra fields, nulls and own words."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

_USAGE: Document = {"prompt_tokens": 31, "completion_tokens": 12, "total_tokens": 43}
_OPENAI_USAGE: Document = _USAGE | {
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0, "cache_write_tokens": 3},
    "completion_tokens_details": {
        "reasoning_tokens": 4, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
    },
}  # fmt: skip
_LOGPROBS: Document = {
    "content": [
        {"token": " Paris", "logprob": -0.00012, "bytes": [32, 80, 97], "top_logprobs": [
            {"token": " Paris", "logprob": -0.00012, "bytes": [32, 80, 97]},
            {"token": " Lyon", "logprob": -9.25, "bytes": None},
        ]},
        {"token": ".", "logprob": 0, "bytes": None, "top_logprobs": []},
    ],
    "refusal": None,
}  # fmt: skip
_FILTER: Document = {
    name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")
}
_CALLS: list[Document] = [
    {"id": "call_1", "type": "function", "function": {"name": "find_flight", "arguments": '{"from":"ZRH","to":"OSL"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    {"id": "call_3", "type": "custom", "custom": {"name": "run", "input": "print('a \\u00e9')"}},
]


def _chunk(delta: Document, finish: Any = None, *, choice: Document | None = None, **more: Any) -> Document:
    return {
        "id": "chatcmpl-Abc123", "object": "chat.completion.chunk", "created": 1763600000, "model": "some-model-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **(choice or {})}],
        **more,
    }  # fmt: skip


def _completion(message: Document, finish: Any = "stop", *, choice: Document | None = None, **more: Any) -> Document:
    return {
        "id": "chatcmpl-Abc123", "object": "chat.completion", "created": 1763600000, "model": "some-model-1",
        "choices": [
            {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **(choice or {})}
        ],
        "usage": _OPENAI_USAGE, **more,
    }  # fmt: skip


_NULL_LOGPROBS: Document = {"logprobs": None}
CHUNKS: list[Document] = [
    # OpenAI, with and without what pads a chunk.
    _chunk({"role": "assistant", "content": "", "refusal": None}, choice=_NULL_LOGPROBS, service_tier="default",
           system_fingerprint="fp_1", usage=None, obfuscation="aB3"),
    _chunk({"content": " hello"}, choice=_NULL_LOGPROBS, service_tier="default", system_fingerprint="fp_1", usage=None),
    _chunk({"content": "é\U0001f600\u2028"}, choice={"logprobs": _LOGPROBS}),
    _chunk({}, "stop", choice=_NULL_LOGPROBS, usage=None),
    _chunk({}, choices=[], usage=_OPENAI_USAGE, service_tier="default", system_fingerprint=None, obfuscation=""),
    _chunk({"role": "assistant", "content": None, "tool_calls": [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "find", "arguments": ""}},
        {"index": 1, "function": {"arguments": '{"a"'}},
    ]}, choice=_NULL_LOGPROBS),
    _chunk({"function_call": {"name": "old", "arguments": "{}"}}, "function_call"),
    _chunk({"role": "assistant", "audio": {"id": "audio_1", "data": "AAAA", "transcript": "hm", "expires_at": 1}}),
    # Groq.
    _chunk({"role": "assistant", "content": ""}, system_fingerprint="fp_2", choice=_NULL_LOGPROBS,
           x_groq={"id": "req_1", "seed": 7}, service_tier="on_demand"),
    _chunk({}, "stop", x_groq={"id": "req_1", "usage": _USAGE | {"queue_time": 0.018, "total_time": 0.2}},
           usage=_USAGE | {"queue_time": 0.01, "prompt_time": 0.001}, service_tier="on_demand"),
    _chunk({"reasoning": "Let me see", "channel": "analysis"}, service_tier="on_demand"),
    # Cerebras.
    _chunk({}, "stop", system_fingerprint="fp_3", usage=_USAGE | {"prompt_tokens_details": {"cached_tokens": 0}},
           time_info={"queue_time": 1e-4, "prompt_time": 2.1e-3, "completion_time": 0.01, "created": 1763600000.25}),
    # DeepSeek.
    _chunk({"role": "assistant", "content": None, "reasoning_content": "First"}, choice=_NULL_LOGPROBS, usage=None),
    _chunk({"content": "", "reasoning_content": None}, "insufficient_system_resource", usage=_USAGE | {
        "prompt_cache_hit_tokens": 16, "prompt_cache_miss_tokens": 15}),
    # vLLM.
    _chunk({"role": "assistant", "content": "", "reasoning_content": None}, choice=_NULL_LOGPROBS | {
        "token_ids": None}, prompt_token_ids=None),
    _chunk({"content": " a"}, choice=_NULL_LOGPROBS | {"stop_reason": None, "token_ids": [12, 13]}, usage=None),
    _chunk({"content": ""}, "stop", choice={"stop_reason": 128009}, usage=_USAGE | {"prompt_tokens_details": None}),
    # SGLang.
    _chunk({"role": None, "content": "x", "reasoning_content": None, "tool_calls": None},
           choice=_NULL_LOGPROBS | {"matched_stop": None}, usage=None),
    _chunk({"content": None}, "stop", choice={"matched_stop": 151645, "hidden_states": None}),
    _chunk({}, "abort", choice={"matched_stop": "</s>"}),
    # llama.cpp.
    _chunk({"role": "assistant", "content": None}, system_fingerprint="b6527-x"),
    _chunk({}, choices=[], usage=_USAGE, timings={"cache_n": 3, "prompt_ms": 33.06, "predicted_per_second": 111.5},
           prompt_progress={"total": 5, "cache": 0}),
    # Ollama, transformers, OpenRouter.
    _chunk({"role": "assistant", "content": "", "reasoning": "Okay"}, system_fingerprint="fp_ollama"),
    _chunk({"content": "a"}, model="model@main", system_fingerprint="", usage=_USAGE),
    _chunk({"role": "assistant", "content": "", "reasoning": "hm", "reasoning_details": [
        {"type": "reasoning.text", "text": "hm", "format": "unknown", "index": 0}]}, provider="Anthropic",
        choice=_NULL_LOGPROBS | {"native_finish_reason": None}),
    _chunk({"content": ""}, "stop", provider="Google", choice={"native_finish_reason": "STOP"},
           usage=_USAGE | {"cost": 1.2e-5, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}),
    _chunk({"content": ""}, "error", provider="x", choice={"error": {"code": 502, "message": "gone"}}),
    # Mistral: parts instead of text.
    _chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, p="abcde"),
    _chunk({"content": "", "tool_calls": [{"id": "a1", "function": {"name": "f", "arguments": "{}"}, "index": 0}]},
           "tool_calls", usage=_USAGE | {"num_cached_tokens": 0}),
    # xAI, Gemini, Fireworks, Together.
    _chunk({"content": "x", "role": "assistant"}, usage=_OPENAI_USAGE | {"num_sources_used": 0}, citations=["https://a"]),
    _chunk({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}", "name": "f"}, "id": "", "type":
           "function", "extra_content": {"google": {"thought_signature": "ABC"}}}]}, "tool_calls", usage=_USAGE),
    _chunk({"content": "y"}, choice={"prompt_token_ids": [1, 2], "raw_output": None}, usage=None, perf_metrics=None),
    _chunk({"token_id": 3681, "role": "assistant", "content": "z", "tool_calls": None}, choice={
        "text": "z", "logprobs": -0.25, "seed": None}, usage=None),
    _chunk({"content": ""}, "eos", choice={"text": "", "seed": 1.5e19}, usage=_USAGE | {"cached_tokens": 0}),
    # LiteLLM, Azure, Anthropic's compatible endpoint.
    _chunk({"content": "a", "provider_specific_fields": None, "thinking_blocks": [{"type": "thinking"}]},
           citations=None, service_tier=None, provider_specific_fields=None),
    {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [
        {"prompt_index": 0, "content_filter_results": _FILTER}]},
    _chunk({"content": "b"}, choice={"content_filter_results": _FILTER, "content_filter_offsets": {
        "check_offset": 44, "start_offset": 44}}),
    {"choices": [{"content_filter_results": _FILTER, "finish_reason": None, "index": 0, "logprobs": None}], "id": "a",
     "created": 0, "model": "", "object": ""},
    _chunk({"content": "c"}, "end_turn", usage=_USAGE | {"cache_read_input_tokens": 0}, error=None),
    {"error": {"message": "overloaded", "type": "server_error", "code": 503}},
    _chunk({}, moderation={"input": {"type": "moderation_results", "model": "m", "results": [
        {"flagged": True, "categories": {"hate": False}, "category_scores": {"hate": 1, "x": 0.25},
         "category_applied_input_types": {"hate": ["text"]}, "type": "moderation_result", "model": "m"}]},
        "output": {"type": "error", "code": "x", "message": "y"}}),
]  # fmt: skip

COMPLETIONS: list[Document] = [
    _completion({"content": "Yes.", "refusal": None, "annotations": []}, choice=_NULL_LOGPROBS, service_tier="default"),
    _completion({"content": None, "tool_calls": _CALLS, "refusal": None}, "tool_calls", choice=_NULL_LOGPROBS),
    _completion({"content": "a", "annotations": [{"type": "url_citation", "url_citation": {
        "start_index": 0, "end_index": 1, "url": "https://a", "title": "A"}}]}, choice={"logprobs": _LOGPROBS}),
    _completion({"content": None, "audio": {"id": "a", "data": "AAA", "transcript": "t", "expires_at": 5}}),
    _completion({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
    _completion({"content": "a", "reasoning": "b"}, usage=_USAGE | {"queue_time": 0.1}, x_groq={"id": "r"},
                service_tier="on_demand"),
    _completion({"content": "a"}, time_info={"queue_time": 1e-4, "created": 1}, service_tier=None),
    _completion({"content": "a", "reasoning_content": "b"}, usage=_USAGE | {"prompt_cache_hit_tokens": 0}),
    _completion({"content": None, "reasoning_content": None, "tool_calls": [], "function_call": None, "audio": None},
                choice=_NULL_LOGPROBS | {"stop_reason": None, "token_ids": None}, prompt_logprobs=None,
                kv_transfer_params=None, usage=_USAGE | {"prompt_tokens_details": None}),
    _completion({"content": "a"}, choice={"matched_stop": 2}, metadata={"weight_version": "default"}),
    _completion({"content": "a"}, timings={"prompt_ms": 1.5}, system_fingerprint="b1"),
    _completion({"content": "a", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, provider="P",
                choice={"native_finish_reason": "stop"}, usage=_USAGE | {"cost": 0}),
    _completion({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}], "prefix": False}),
    _completion({"content": "a", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
                "tool_calls"),
    _completion({"content": "a"}, choice={"content_filter_results": _FILTER}, prompt_filter_results=[
        {"prompt_index": 0, "content_filter_results": _FILTER}]),
    _completion({"content": "a"}, "end_turn", citations=["x"], usage=_USAGE | {"num_sources_used": 0}),
    _completion({"content": "a"}, choices=[], error={"message": "m", "code": 400}),
    _completion({"content": "a", "role": "model"}, created=1763600000.5, id=None),
]  # fmt: skip

EMBEDDINGS: list[Document] = [
    {"object": "list", "model": "m", "usage": {"prompt_tokens": 8, "total_tokens": 8}, "data": [
        {"object": "embedding", "index": index, "embedding": [0.0123, -0.5, 1e-9, 0, 3, -1]} for index in range(2)]},
    {"object": "list", "model": "m", "usage": {"prompt_tokens": 8, "total_tokens": 8}, "data": [
        {"object": "embedding", "index": 0, "embedding": "AAAAAAAAgD8="}], "id": "emb_1"},
    {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [1.0, None, "x"]}]},
    {"id": "e", "object": "list", "created": 1, "model": "m", "data": [{"index": 0, "object": "embedding",
     "embedding": [[1.0, 2.0], [3]]}], "usage": {"prompt_tokens": 1, "total_tokens": 1, "completion_tokens": 0,
                                                 "prompt_tokens_details": None}},
    {"object": "list", "model": "m", "data": [], "usage": {"prompt_tokens": 0, "total_tokens": 0}, "provider": "x"},
    {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [
        9007199254740991, 9007199254740992, 1.7e308, -9007199254740993]}], "usage": {
            "prompt_tokens": 0, "total_tokens": 0}},
]  # fmt: skip

_OUTPUT: list[Document] = [
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "Hello", "annotations": [
            {"type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://a", "title": "A"},
            {"type": "file_citation", "file_id": "f", "filename": "n", "index": 0}], "logprobs": [
            {"token": "H", "logprob": -1, "bytes": [72], "top_logprobs": []}]},
        {"type": "refusal", "refusal": "no"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": None,
     "status": None},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "status": "completed", "results": [
        {"file_id": "f", "score": 0.5, "attributes": {"a": 1, "b": True, "c": "d"}}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "status": "completed",
     "outputs": [{"type": "logs", "logs": "1"}, {"type": "image", "url": "u"}]},
    {"type": "mcp_call", "id": "m", "arguments": "{}", "name": "n", "server_label": "s", "error": None, "output": "o"},
    {"type": "computer_call", "id": "c", "call_id": "d", "status": "completed", "pending_safety_checks": [],
     "action": {"type": "click", "button": "left", "x": 1, "y": 2}},
    {"type": "no such item", "id": "x"},
]  # fmt: skip


def _response(**more: Any) -> Document:
    return {
        "id": "resp_1", "object": "response", "created_at": 1763600000, "status": "completed", "error": None,
        "incomplete_details": None, "instructions": None, "max_output_tokens": None, "model": "m",
        "output": _OUTPUT[:1], "parallel_tool_calls": True, "previous_response_id": None, "reasoning": {
            "effort": "low", "summary": None}, "store": True, "temperature": 1.0, "text": {"format": {"type": "text"},
            "verbosity": "medium"}, "tool_choice": "auto", "tools": [], "top_p": 1, "truncation": "disabled",
        "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2,
                  "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 3}, "user": None, "metadata": {},
        **more,
    }  # fmt: skip


RESPONSES: list[Document] = [
    _response(),
    _response(output=_OUTPUT[:-1], service_tier="default", background=False, top_logprobs=0, safety_identifier=None),
    _response(output=_OUTPUT, max_tool_calls=None, prompt_cache_key="k", billing={"payer": "developer"}),
    _response(instructions="Be brief", text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "x"},
              "strict": True}}, tool_choice={"type": "function", "name": "f"}, metadata={"a": "b"}),
    _response(tools=[{"type": "function", "name": "f", "parameters": {"type": "object", "x": [1.5]}, "strict": True},
              {"type": "file_search", "vector_store_ids": ["v"], "filters": {"type": "and", "filters": [
                  {"type": "eq", "key": "a", "value": 1}, {"type": "or", "filters": []}]}},
              {"type": "web_search", "user_location": None}, {"type": "code_interpreter", "container": "c"},
              {"type": "mcp", "server_label": "s", "server_url": "u", "allowed_tools": ["a"]}]),
    _response(instructions=[{"role": "user", "content": "a"}, {"type": "message", "role": "system", "content": [
        {"type": "input_text", "text": "b"}]}]),
    _response(status="failed", error={"code": "server_error", "message": "m"}, output=[], usage=None),
    _response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}, service_tier="on_demand"),
    _response(created_at=1763600000.75, temperature=0.5, frequency_penalty=0.0, presence_penalty=0, kv=None),
    _response(tool_choice={"type": "no such"}, tools=[{"type": "no such"}], output=[{"type": "message"}]),
    {"id": "resp_2", "object": "response", "created_at": 1.0, "model": "m", "output": _OUTPUT[:3], "status": "queued",
     "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}},
]  # fmt: skip


def _event(kind: str, **more: Any) -> Document:
    return {"type": f"response.{kind}", "sequence_number": 4, **more}


_PLACE: Document = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
EVENTS: list[Document] = [
    _event("created", response=_response(status="in_progress", output=[], usage=None)),
    _event("completed", response=_response(output=_OUTPUT)),
    _event("completed", response=RESPONSES[4]),
    _event("failed", response=RESPONSES[6]),
    *(_event("output_item.added", output_index=0, item=item) for item in _OUTPUT),
    *(_event("output_item.done", output_index=0, item=item) for item in _OUTPUT),
    _event("content_part.added", **_PLACE, part={"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
    _event("content_part.added", part={"type": "output_text", "text": ""}, item_id="x"),
    _event("output_text.delta", **_PLACE, delta="He", logprobs=[], obfuscation="aBc"),
    _event("output_text.delta", **_PLACE, delta="lo", logprobs=[{"token": "lo", "logprob": -0.5, "top_logprobs": [
        {"token": "lo", "logprob": -1}]}]),
    _event("output_text.delta", **_PLACE, delta="lo"),
    _event("output_text.done", **_PLACE, text="Hello", logprobs=[]),
    _event("output_text.annotation.added", **_PLACE, annotation_index=0, annotation={"type": "file_path"}),
    _event("function_call_arguments.delta", item_id="fc", output_index=0, delta="{", obfuscation="x"),
    _event("function_call_arguments.done", item_id="fc", output_index=0, arguments="{}", name="f"),
    _event("reasoning_summary_text.delta", item_id="rs", output_index=0, summary_index=0, delta="a"),
    _event("reasoning_summary_part.added", item_id="rs", output_index=0, summary_index=0, part={
        "type": "summary_text", "text": ""}),
    _event("reasoning_text.delta", **_PLACE, delta="hm"),
    _event("refusal.delta", **_PLACE, delta="no"),
    _event("web_search_call.searching", item_id="ws", output_index=0),
    _event("image_generation_call.partial_image", item_id="i", output_index=0, partial_image_b64="AA==",
           partial_image_index=0),
    _event("no.such.event", delta="x"),
    {"type": "error", "code": "rate_limit", "message": "slow down", "param": None, "sequence_number": 1},
    {"type": "error", "error": {"type": "server_error", "message": "m"}, "sequence_number": 1},
    {"sequence_number": 5, "delta": "type last", **_PLACE, "logprobs": [], "type": "response.output_text.delta"},
    {"type": "keepalive", "sequence_number": 9},
]  # fmt: skip
