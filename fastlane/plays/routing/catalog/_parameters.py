"""Names of a request's fields, and which of them was probably meant by a name that is none of them."""

from __future__ import annotations

from difflib import get_close_matches

# Providers have fields of their own ("top_k", "min_tokens", "max_new_tokens"), some a letter or two from the API's:
# only what is nearer than these are is taken for a slip.
_NEAR = 0.87

KNOWN = (
    "audio", "background", "best_of", "conversation", "echo", "frequency_penalty",
    "function_call", "functions", "include", "input", "instructions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_output_tokens", "max_tokens", "max_tool_calls", "messages",
    "metadata", "modalities", "n", "parallel_tool_calls", "prediction", "presence_penalty", "previous_response_id",
    "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning",
    "reasoning_effort", "reasoning_format", "response_format", "safety_identifier", "seed", "service_tier", "stop",
    "store", "stream", "stream_options",
    "suffix", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
    "truncation", "user", "verbosity", "web_search_options",
)  # fmt: skip
"""Those of chat completions, responses and completions, and what providers call something else that is near to one."""


def meant_by(name: str) -> str | None:
    """Return what was probably meant by a name, or by a path such as "stream_options.include_usage".

    None where it is the name of a field, or the path begins with one, and where it is near to none of them.
    """
    field, dot, rest = name.partition(".")
    if field in KNOWN:
        return None
    near = get_close_matches(field.strip().lower(), KNOWN, n=1, cutoff=_NEAR)
    return f"{near[0]}{dot}{rest}" if near else None
