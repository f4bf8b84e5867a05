"""A process that was suspended while the server closed its connection makes its next call without a retry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.call_peer import CallPeer, trusted

CALLS_BEFORE_AND_AFTER = """
import sys
import fastlane

client = fastlane.OpenAI(api_key="none", base_url=sys.argv[1] + "/v1", max_retries=0)
messages = [{"role": "user", "content": "Name a river."}]
for turn in range(2):
    answer = client.chat.completions.create(model="m", messages=messages)
    record = fastlane.record_of(answer)
    print(record.outcome, record.connection_reused, len(record.attempts), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this platform cannot suspend a process")
@pytest.mark.slow
def test_resumed_process_calls_over_a_new_connection(tmp_path: Path) -> None:
    with CallPeer("HTTP/2") as peer, trusted(tmp_path) as environment:
        process = subprocess.Popen(
            [sys.executable, "-c", CALLS_BEFORE_AND_AFTER, peer.url],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "completed False 1\n"
            process.send_signal(signal.SIGSTOP)
            peer.close_connections()
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "completed False 1\n"
            process.communicate("\n", timeout=300)
        finally:
            process.kill()
            process.communicate()
    assert len(peer.asked) == 2
