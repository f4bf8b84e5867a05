"""What the tests of files and batches share: input lines, and waiting for a batch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from time import perf_counter_ns as now_ns
from typing import Any

import openai
from openai.types import Batch, FileObject

FINAL = ("completed", "failed", "expired", "cancelled")
# Ends a test that waits for ever, and nothing else.
_PATIENCE_NS = 60 * 1_000_000_000


def line(custom_id: str, text: str = "Review this.", **more: Any) -> dict[str, Any]:
    body = {"model": "some-model", "messages": [{"role": "user", "content": text}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body, **more}


def jsonl(lines: Iterable[object]) -> bytes:
    return b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in lines)


def upload(client: openai.OpenAI, lines: Iterable[object], name: str = "batch.jsonl") -> FileObject:
    return client.files.create(file=(name, jsonl(lines)), purpose="batch")


def create(client: openai.OpenAI, lines: Iterable[object], **more: Any) -> Batch:
    file = upload(client, lines)
    settings = {"endpoint": "/v1/chat/completions", "completion_window": "24h", **more}
    return client.batches.create(input_file_id=file.id, **settings)


def until(client: openai.OpenAI, batch: Batch, condition: Callable[[Batch], bool]) -> Batch:
    deadline = now_ns() + _PATIENCE_NS
    while not condition(batch):
        assert now_ns() < deadline, f"{batch.status}, {batch.request_counts}"
        threading.Event().wait(0.01)
        batch = client.batches.retrieve(batch.id)
    return batch


def ended(client: openai.OpenAI, batch: Batch) -> Batch:
    return until(client, batch, lambda batch: batch.status in FINAL)


def read(client: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    """A file's lines by their `custom_id`."""
    assert file_id
    lines = [json.loads(each) for each in client.files.content(file_id).text.splitlines()]
    assert len({each["custom_id"] for each in lines}) == len(lines)
    return {each["custom_id"]: each for each in lines}
