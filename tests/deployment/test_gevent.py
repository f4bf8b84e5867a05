"""Under gevent's patched sockets, calls go over openai's own transport, and the client says so."""

from __future__ import annotations

import pytest

from fastlane.emulator import Emulator
from tests.programs import printed_by

CALLS_IN_GREENLETS = """
from gevent import monkey

monkey.patch_all()

import gevent
import fastlane

client = fastlane.OpenAI(max_retries=0)
print(client.explain())
messages = [{"role": "user", "content": "Name a river."}]

def call():
    stream = client.chat.completions.create(model="m", messages=messages, stream=True, max_tokens=20)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    record = fastlane.record_of(stream)
    return bool(text), record.outcome, record.transport

jobs = [gevent.spawn(call) for _ in range(20)]
gevent.joinall(jobs, timeout=60, raise_error=True)
assert [job.value for job in jobs] == [(True, "completed", "stock")] * 20, [job.value for job in jobs]
"""


@pytest.mark.slow
def test_gevent_calls_use_openai_transport_and_explain_it(provider: Emulator) -> None:
    environment = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-test"}

    assert "gevent" in printed_by("-c", CALLS_IN_GREENLETS, environment=environment)
    assert len(provider.log()) == 20
