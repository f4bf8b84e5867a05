"""The endpoints whose answers fastlane understands."""

from __future__ import annotations

CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS = "/chat/completions", "/completions", "/responses", "/embeddings"

GENERATING = frozenset({CHAT, COMPLETIONS, RESPONSES})
"""Endpoints whose answers a model generates; they can be streamed."""

PROMPT_FIELDS = {CHAT: "messages", RESPONSES: "input", COMPLETIONS: "prompt"}
"""The field of the body that holds the prompt."""


def is_response(endpoint: str) -> bool:
    """Return whether an endpoint returns a response of the Responses API, created or fetched."""
    return endpoint == RESPONSES or endpoint.startswith(f"{RESPONSES}/")
