"""A process that is forked amid live streams: parent and child both go on, each on connections of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run_python
from tests.transport.peer import Peer, Stream, authority, by_path
from tests.transport.peer_h1 import SlowAnswer

PROGRAM = """
import os, ssl, sys
import httpx2
from fastlane import transport
from tests.waiting import Form, Waiting

kind, closes, url, ca = sys.argv[1:]
is_async = kind == "async"
made = (transport.AsyncTransport if is_async else transport.Transport)(verify=ssl.create_default_context(cafile=ca))
form = Form(kind)
client = form.make(httpx2, "Client", transport=made, base_url=url, timeout=30)
client.get("/first")
response = client.send(client.build_request("GET", "/slow"), stream=True)
pieces = Waiting(response.aiter_bytes(), form.run) if is_async else response.iter_bytes()
got = next(pieces)
child = os.fork()
if child == 0:
    status = 1
    try:
        theirs = Waiting(client.inner, Form(kind).run) if is_async else client
        assert [theirs.get("/child").text for _ in range(3)] == ["ok"] * 3
        if closes == "True":
            (theirs.aclose if is_async else theirs.close)()
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
client.get("/release")
for piece in pieces:
    got += piece
assert got == b"first last", got
assert client.get("/parent").text == "ok"
(client.aclose if is_async else client.close)()
print("both")
"""


@pytest.mark.parametrize("closes", [False, True], ids=["the child just ends", "the child closes its client"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_forked_processes_use_separate_connections(kind: str, closes: bool, tmp_path: Path) -> None:
    slow = SlowAnswer()

    def let_go(stream: Stream) -> None:
        slow.release.set()
        stream.answer(b"ok")

    certificates = tmp_path / "ca.pem"
    authority().cert_pem.write_to_path(str(certificates))
    with Peer(by_path(slow=slow.h2, release=let_go)) as peer:
        ran = run_python("-c", PROGRAM, kind, str(closes), peer.url, str(certificates))

        assert (ran.stdout, ran.returncode) == ("both\n", 0), ran.stderr
        seen = [(stream.path, stream.connection.number) for stream in peer.requests]
        assert seen[:2] == [("/first", 1), ("/slow", 1)]
        assert seen[2:5] == [("/child", 2)] * 3
        assert seen[5:] == [("/release", 1), ("/parent", 1)]
        assert peer.resets == []
