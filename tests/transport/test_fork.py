"""A process that is forked amid live streams: parent and child both go on, each on connections of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.transport.peer import HANG_S, Peer, Stream, authority, by_path
from tests.transport.peer_h1 import SlowAnswer

SYNC = """
import os, ssl, sys
import httpx2
from fastlane.transport import Transport

url, ca = sys.argv[1:]
client = httpx2.Client(transport=Transport(verify=ssl.create_default_context(cafile=ca)), base_url=url, timeout=30)
client.get("/first")
with client.stream("GET", "/slow") as response:
    pieces = response.iter_bytes()
    got = next(pieces)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert [client.get("/child").text for _ in range(3)] == ["ok"] * 3
            if {closes}:
                client.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.get("/release")
    for piece in pieces:
        got += piece
assert got == b"first last", got
assert client.get("/parent").text == "ok"
client.close()
print("both")
"""

ASYNC = """
import asyncio, os, ssl, sys
import httpx2
from fastlane.transport import AsyncTransport

url, ca = sys.argv[1:]
transport = AsyncTransport(verify=ssl.create_default_context(cafile=ca))
client = httpx2.AsyncClient(transport=transport, base_url=url, timeout=30)

async def in_the_child():
    assert [(await client.get("/child")).text for _ in range(3)] == ["ok"] * 3
    if {closes}:
        await client.aclose()

async def begin():
    await client.get("/first")
    response = await client.send(client.build_request("GET", "/slow"), stream=True)
    pieces = response.aiter_bytes()
    return response, pieces, await anext(pieces)

async def go_on(response, pieces, got):
    await client.get("/release")
    async for piece in pieces:
        got += piece
    await response.aclose()
    assert got == b"first last", got
    assert (await client.get("/parent")).text == "ok"
    await client.aclose()

runner = asyncio.Runner()
begun = runner.run(begin())
child = os.fork()
if child == 0:
    status = 1
    try:
        asyncio.run(in_the_child())
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
runner.run(go_on(*begun))
runner.close()
print("both")
"""


@pytest.mark.parametrize("closes", [False, True], ids=["the child just ends", "the child closes its client"])
@pytest.mark.parametrize("script", [SYNC, ASYNC], ids=["sync", "async"])
def test_forked_processes_use_separate_connections(script: str, closes: bool, tmp_path: Path) -> None:
    slow = SlowAnswer()

    def let_go(stream: Stream) -> None:
        slow.release.set()
        stream.answer(b"ok")

    certificates, program = tmp_path / "ca.pem", tmp_path / "fork.py"
    authority().cert_pem.write_to_path(str(certificates))
    program.write_text(script.replace("{closes}", str(closes)))
    with Peer(by_path(slow=slow.h2, release=let_go)) as peer:
        ran = subprocess.run(
            [sys.executable, str(program), peer.url, str(certificates)],
            capture_output=True,
            text=True,
            timeout=2 * HANG_S,
            cwd=Path(__file__).parent.parent.parent,
            check=False,
        )

        assert (ran.stdout, ran.returncode) == ("both\n", 0), ran.stderr
        seen = [(stream.path, stream.connection.number) for stream in peer.requests]
        assert seen[:2] == [("/first", 1), ("/slow", 1)]
        assert seen[2:5] == [("/child", 2)] * 3
        assert seen[5:] == [("/release", 1), ("/parent", 1)]
        assert peer.resets == []
