"""Under gevent's patched sockets, calls go over openai's own transport, and the client says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fastlane.emulator import Emulator

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
    environment = {**os.environ, "OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-test"}
    ran = subprocess.run(
        [sys.executable, "-c", CALLS_IN_GREENLETS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "gevent" in ran.stdout
    assert len(provider.log()) == 20
