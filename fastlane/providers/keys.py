"""The environment variable that holds the key for a URL."""

from __future__ import annotations

import os

from .origins import origin_of
from .registry import facts_of

OPENAI_KEY = "OPENAI_API_KEY"


def key_variable(base_url: str) -> str | None:
    """Return OPENAI_API_KEY for OpenAI, $OPENAI_BASE_URL and this machine: no other provider is sent it unasked."""
    origin = origin_of(base_url)
    is_own = base_url.rstrip("/") == os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    is_meant = is_own or (origin is not None and origin.is_local) or facts_of(base_url).slug == "openai"
    return OPENAI_KEY if is_meant else None
