"""A timeout ends only its call, with the error that says what the call waited for."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest

from tests.transport.faces import both_faces
from tests.transport.peer import CANCEL, HANG_S, HeldHandshakes, Peer, Stream, by_path, one_piece, silent
from tests.transport.peer_h1 import SlowAnswer
from tests.waiting import until

SHORT = 0.3


@both_faces
def test_read_timeout_counts_from_the_last_piece(make_face: Any) -> None:
    def steady(stream: Stream) -> None:
        stream.head()
        for _ in range(9):
            time.sleep(0.25)
            stream.data(b".")
        stream.data(b"", end=True)

    with Peer(steady) as peer, make_face(peer.url) as face:
        # Longer in all than the timeout, and each pause so much shorter that a busy machine may be late.
        assert face.get(timeout=httpx2.Timeout(HANG_S, read=2)).content == b"." * 9


@both_faces
def test_pieces_for_others_do_not_put_a_read_timeout_off(make_face: Any) -> None:
    def busy(stream: Stream) -> None:
        stream.head()
        while True:
            stream.data(b"piece")
            time.sleep(0.02)

    with Peer(by_path(silent=silent, busy=busy)) as peer, make_face(peer.url) as face:
        others = face.open("/busy")
        with pytest.raises(httpx2.ReadTimeout):
            face.get("/silent", timeout=SHORT)

        assert others.piece()[:5] == b"piece"
        others.close()


@both_faces
def test_call_without_a_timeout_waits_for_its_answer(make_face: Any) -> None:
    slow = SlowAnswer()
    with Peer(by_path(slow=slow.h2)) as peer, make_face(peer.url, timeout=None) as face:
        call = face.begin("/slow")
        until(lambda: len(peer.requests) == 1)
        slow.release.set()

        assert call.result().content == b"first last"
        assert face.post(content=face.upload([b"x"])).content == b"ok"


@both_faces
def test_connect_timeout_of_one_call_ends_no_other_wait(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        held = HeldHandshakes(peer)
        hasty = face.begin("/hasty", timeout=httpx2.Timeout(30, connect=1))
        assert held.begun.wait(30)
        patient = face.begin("/patient", timeout=httpx2.Timeout(30))

        assert isinstance(hasty.error(), httpx2.ConnectTimeout)
        assert not patient.future.done()
        held.go_on.set()
        assert patient.result().content == b"ok"
        assert [stream.path for stream in peer.requests] == ["/patient"]


@both_faces
@pytest.mark.parametrize("path", ["/silent", "/stalls"])
def test_timeout_longer_than_the_check_interval_is_met(make_face: Any, path: str) -> None:
    # A connection that is idle for so short a time is looked at every 0.05 s.
    with Peer(by_path(silent=silent, stalls=one_piece)) as peer, make_face(peer.url, idle_s=0.1) as face:
        started = time.monotonic()
        with pytest.raises(httpx2.ReadTimeout):
            face.get(path, timeout=httpx2.Timeout(HANG_S, read=1.0))

        assert time.monotonic() - started >= 1.0
        until(lambda: peer.resets == [CANCEL])
