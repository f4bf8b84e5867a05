"""Programs that end amid calls end at once, as they would without them, and without a word that is not their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.attempts.scripted import Upstream, answer, answer_after, chunk, refuse, say_nothing
from tests.programs import run_python
from tests.races.ending import ENDS, STATES
from tests.transport.peer import Stream

CODES = {"returns": 0, "exits": 3, "fails": 1, "is_terminated": -15, "takes_its_leave": 3}


class Ended(NamedTuple):
    """How a program has ended."""

    code: int | None
    """None: it had to be killed."""
    out: str
    err: str


class Programs:
    """Programs that are children of one process, which has loaded everything that they need."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.races.ending", url],
            cwd=Path(__file__).parent.parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, state: str, url: str, *ends: str) -> dict[str, Ended]:
        """Have programs come into a state and end as given; how they have."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        folder = self._folder / state
        folder.mkdir()
        asked = {"state": state, "url": url, "ends": ends, "folder": str(folder)}
        print(json.dumps(asked), file=self._parent.stdin, flush=True)
        return {end: Ended(*result) for end, result in json.loads(self._parent.stdout.readline()).items()}

    def close(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(20)
        self._parent.stdout.close()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Programs]:
    from tests.call_peer import trusted

    with trusted(tmp_path_factory.mktemp("trust")) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        running = Programs(tmp_path_factory.mktemp("said"), url)
    yield running
    running.close()


def stream_on(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Send something every moment, until the client leaves."""
    stream.head(200, (("content-type", "text/event-stream"),))
    while True:
        stream.data(chunk(body["model"], {"content": "Rhine "}))
        stream.hold_for(0.02)


BY_MODEL = {
    "silent": say_nothing,
    "stream": stream_on,
    "429": refuse(429, ("retry-after", "59")),
    "late": answer_after(0.3, "The Rhine"),
    "near-1": refuse(500),
    "far-1": say_nothing,
}


def by_model(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    silent = body.get("user") == "silent"
    (say_nothing if silent else BY_MODEL.get(body["model"], answer("The Rhine")))(upstream, stream, body)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Upstream("upstream") as upstream:
        upstream.usually = by_model
        yield upstream.url


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}/v1"


def is_as_ever(end: str, ended: Ended, printed: str = "there\n") -> bool:
    """Whether a program has ended as one without calls."""
    assert ended.out == printed, ended
    if end == "fails":
        assert ended.err.startswith("Traceback (most recent call last):\n"), ended
        assert ended.err.endswith("\nValueError: over\n"), ended
        assert ended.err.count("\n\n") == 0, ended  # another message, or another traceback
        assert "Exception ignored" not in ended.err, ended
        assert ended.err.count("Traceback") == 1, ended
    else:
        assert ended.err == "", ended
    return ended.code == CODES[end]


@pytest.mark.parametrize("state", STATES)
def test_program_exits_during_its_calls(state: str, programs: Programs, url: str, mute: str) -> None:
    ended = programs.run(state, mute if state.endswith("connecting") else url, *ENDS)

    assert all(is_as_ever(end, one) for end, one in ended.items()), ended
    assert ended.keys() == ENDS.keys()


def test_threads_that_python_waits_for_get_their_answers_first(programs: Programs, url: str) -> None:
    ended = programs.run("in_a_pool_of_threads", url, "returns", "exits", "fails")

    assert all(is_as_ever(end, one, "there\nThe Rhine\n") for end, one in ended.items()), ended
    assert len(ended) == 3


PROGRAM = """
import atexit

@atexit.register
def read_on():
    for _ in range(40):
        print(next(stream).choices[0].delta.content, flush=True)

import fastlane
stream = fastlane.OpenAI(api_key="sk-test", base_url={url!r}, timeout=20, max_retries=0).chat.completions.create(
    model="stream", messages=[{{"role": "user", "content": "Name rivers."}}], stream=True
)
print(next(stream).choices[0].delta.content, flush=True)
"""


def test_handler_at_exit_reads_on_mid_stream(url: str, trusting_peers: dict[str, str]) -> None:
    """A handler that was registered before fastlane was imported is run behind fastlane's own."""
    ran = run_python("-c", PROGRAM.format(url=url))

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Rhine \n" * 41, "")
