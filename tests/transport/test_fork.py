"""A process that is forked amid live streams: parent and child both go on, each on connections of its own."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from fastlane.transport import AsyncTransport, Transport
from tests.knowledge.forks import in_child
from tests.transport.peer import Peer, Stream, by_path, trusting
from tests.transport.peer_h1 import SlowAnswer
from tests.waiting import Form, Waiting


@pytest.mark.parametrize("closes", [False, True], ids=["the child just ends", "the child closes its client"])
def test_forked_processes_use_separate_connections(form: Form, closes: bool) -> None:
    slow = SlowAnswer()

    def let_go(stream: Stream) -> None:
        slow.release.set()
        stream.answer(b"ok")

    def work() -> list[str]:
        theirs: Any = Waiting(client.inner, Form("async").run) if form.asynchronous else client
        texts = [theirs.get("/child").text for _ in range(3)]
        if closes:
            theirs.aclose() if form.asynchronous else theirs.close()
        return texts

    made = (AsyncTransport if form.asynchronous else Transport)(verify=trusting())
    with (
        Peer(by_path(slow=slow.h2, release=let_go)) as peer,
        form.make(httpx2, "Client", transport=made, base_url=peer.url, timeout=30) as client,
    ):
        client.get("/first")
        response = client.send(client.build_request("GET", "/slow"), stream=True)
        pieces = Waiting(response.aiter_bytes(), form.run) if form.asynchronous else response.iter_bytes()
        got = next(pieces)
        assert in_child(work) == ["ok"] * 3
        client.get("/release")
        assert got + b"".join(pieces) == b"first last"
        assert client.get("/parent").text == "ok"

        seen = [(stream.path, stream.connection.number) for stream in peer.requests]
        assert seen[:2] == [("/first", 1), ("/slow", 1)]
        assert seen[2:5] == [("/child", 2)] * 3
        assert seen[5:] == [("/release", 1), ("/parent", 1)]
        assert peer.resets == []
