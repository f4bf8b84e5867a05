"""What a transport holds is gone when it is closed, and does not grow while it is used."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.transport.faces import both_faces
from tests.transport.peer import INTERNAL_ERROR, Peer, Stream, by_path, one_piece, silent
from tests.transport.resources import descriptors, threads
from tests.waiting import comes_true, until


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Each test leaves the process as it found it: file descriptors and threads, the scripted peer's included."""
    gc.collect()
    files, before = descriptors(), threads()
    yield
    gc.collect()
    assert comes_true(lambda: threads() <= before), threads() - before
    assert comes_true(lambda: len(descriptors()) <= len(files)), descriptors() - files


def reset(stream: Stream) -> None:
    stream.rst(INTERNAL_ERROR)


SCRIPTS = by_path(reset=reset, silent=silent, stalls=one_piece)


@both_faces
def test_nothing_is_left_after_calls_that_went_badly(make_face: Any) -> None:
    with Peer(SCRIPTS) as peer, make_face(peer.url) as face:
        for _ in range(5):
            with pytest.raises(httpx2.RemoteProtocolError):
                face.get("/reset")
            with pytest.raises(httpx2.ReadTimeout):
                face.get("/silent", timeout=httpx2.Timeout(30, read=0.05))
            face.open("/stalls").close()
            face.forget("/stalls", 1)
        until(lambda: len(peer.resets) == 15)


@both_faces
def test_nothing_is_left_of_an_answer_that_was_still_being_read(make_face: Any) -> None:
    with Peer(SCRIPTS) as peer:
        with make_face(peer.url) as face:
            answer = face.open("/stalls")
            assert answer.piece() == b"piece"
        assert peer.connections[0].closed.wait(30)
        del answer


@both_faces
def test_close_can_be_called_again_and_with_nothing_to_close(make_face: Any) -> None:
    with Peer() as peer:
        face = make_face(peer.url)
        face.close()
        face = make_face(peer.url)
        face.get()
        if make_face.asynchronous:
            face.run(face.transport.aclose())
            face.run(face.transport.aclose())
        else:
            face.transport.close()
            face.transport.close()

        # As with httpx2's own transport, what is used after its close opens anew.
        assert face.get().content == b"ok"
        assert [stream.connection.number for stream in peer.requests] == [1, 2]
        face.close()
