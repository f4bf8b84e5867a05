"""How many chunks per second an arm's client can take on this machine, measured before anything else is."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

from fastlane.errors import FastlaneError

from ..._clock import now_ns
from .._arms import Arm, is_asynchronous, made
from . import _async_recorder, _recorder
from ._canned_server import STREAM_CHUNKS, serve
from ._messages import SampleKey, ScheduledRequest

CALIBRATION_S: Final = 2.0
"""How long one arm's client is measured. Its imports and its first answer come before."""
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 5.0
_PROCESSES: Final = multiprocessing.get_context("spawn")
_JOB: Final = ScheduledRequest(
    SampleKey(arm="", tag="calibration", block=0, conversation="calibration", turn=1),
    {"model": "calibration", "messages": [{"role": "user", "content": "Say something."}]},
    {},
)


class CalibrationError(FastlaneError):
    """A client's capacity could not be measured: the message says what happened."""


def calibrate(arm: Arm, seconds: float = CALIBRATION_S) -> float:
    """Return the chunks per second that one process with this arm's client takes, as fast as they come.

    The client runs in a new process and reads canned streams over HTTP/1.1 from a server in another, which sends as
    fast as it is read (seen: 3.8 million chunks per second to a bare socket, where openai's client took 9,000). The
    middle one of its answers' rates counts, so that a moment in which the machine was busy with something else does
    not. It is an upper bound: chunks that come one by one cost more than those that come many to a read, which is one
    reason why only half of it is trusted. Takes `seconds` and the time to start two processes. Raises CalibrationError
    where the client fails.
    """
    with _running(serve) as server:
        port = _received(server, _START_TIMEOUT_S, arm.name)
        with _running(_measure, arm, f"http://127.0.0.1:{port}/v1", seconds) as client:
            answer = _received(client, _START_TIMEOUT_S + seconds, arm.name)
    if isinstance(answer, str):
        raise CalibrationError(f"the client of arm {arm.name!r} could not be calibrated: {answer}")
    return float(answer)


@contextmanager
def _running(target: Any, *arguments: Any) -> Iterator[Connection]:
    ours, theirs = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    # A pipe reports the end of the process only once nobody else holds its side of it.
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(_STOP_TIMEOUT_S)
        if process.is_alive():
            process.terminate()
            process.join()


def _received(pipe: Connection, timeout_s: float, name: str) -> Any:
    try:
        if not pipe.poll(timeout_s):
            raise CalibrationError(f"the calibration of arm {name!r} gave nothing within {timeout_s:.0f} s")
        return pipe.recv()
    except (EOFError, OSError) as error:
        raise CalibrationError(f"the calibration of arm {name!r} ended early: its stderr says why") from error


def _measure(arm: Arm, base_url: str, seconds: float, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pipe:
        try:
            pipe.send(asyncio.run(_pace(arm, base_url, seconds)))
        # Whatever a client raises is the answer to what was asked: it is told to the process that asked.
        except Exception as error:  # noqa: BLE001
            pipe.send(f"{type(error).__name__}: {error}")


async def _pace(arm: Arm, base_url: str, seconds: float) -> float:
    client = await made(arm, base_url, "sk-calibration")
    asynchronous = is_asynchronous(client)
    rates: list[float] = []
    end_ns = None
    while end_ns is None or not rates or now_ns() < end_ns:
        reading = await _async_recorder.read(client, _JOB) if asynchronous else _recorder.read(client, _JOB)
        if reading.error is not None:
            raise reading.error
        # What a client imports and builds for its first answer is not its pace.
        if end_ns is None:
            end_ns = now_ns() + round(seconds * 1e9)
        else:
            rates.append(_rate(reading.token_ns))
    return statistics.median(rates)


def _rate(stamps: Sequence[int]) -> float:
    if len(stamps) != STREAM_CHUNKS:
        raise CalibrationError(f"{STREAM_CHUNKS} chunks were sent, and {len(stamps)} were seen")
    # All in one read would be no pace at all: one nanosecond is a bound that no client reaches.
    return (len(stamps) - 1) * 1e9 / max(1, stamps[-1] - stamps[0])
