"""Nothing that a client sends or is answered gets into a log, whatever is logged."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.transport.callers import request


def test_no_log_at_debug_has_the_key_or_the_prompt(
    caller: Any, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        caller.ask(output_tokens=1)
        caller.read(output_tokens=2)

    ours = [record for record in caplog.records if not record.name.startswith("openai")]
    text = "\n".join(record.getMessage() for record in ours)
    assert arguments["api_key"] not in text
    assert request()["messages"][0]["content"] not in text
