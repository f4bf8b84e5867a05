"""Clients that are wrong on purpose, to prove that the judging finds it: `python -m tests.conformance --self-check`."""

from __future__ import annotations

from typing import Any

import openai


class OpenAI(openai.OpenAI):
    """Its streams have no events: tests fail."""

    def _make_sse_decoder(self) -> Any:
        decoder: Any = super()._make_sse_decoder()
        decoder.iter_bytes = lambda chunks: iter(())
        return decoder


class AsyncOpenAI(openai.AsyncOpenAI):
    """It has every test skipped that makes one: nothing fails, and nothing passes."""

    def __init__(self, **options: Any) -> None:
        import pytest

        pytest.skip(f"made with {', '.join(options)}")
