"""How an arm's process tells what it has recorded without keeping a stream waiting meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Final

from ._messages import Done, ScheduledRequest
from ._reading import StreamReader, sample_of

BUSY_CHUNKS_PER_S: Final = 3_000.0
"""From here on records are kept until there is time for them.

To make a record and to pickle it takes some 0.4 ms. At 3,000 chunks a second one that came meanwhile would on average
wait for a record every tenth time or more often.
"""
_MOST_KEPT: Final = 5_000


class SampleSender:
    """Tells the parent of requests that are over; `finished` is called where the request was read.

    In that thread, or in the event loop, and in no thread of its own: a second thread that works while a loop reads
    takes the interpreter's lock at each of the loop's system calls, and keeps it for up to 5 ms. Where many chunks
    come, only the fact is told, and the record is made once fewer come, or the cell has ended.
    """

    def __init__(self, client: Any, pipe: Connection) -> None:
        self._client = client
        self._pipe = pipe
        self._kept: deque[tuple[ScheduledRequest, StreamReader]] = deque()
        self._in_flight = 0
        self._lock = threading.Lock()
        self._written: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._write, name="fastlane-bench-answers", daemon=True).start()

    def begun(self) -> None:
        """Take note of a request that begins."""
        with self._lock:
            self._in_flight += 1

    def finished(self, job: ScheduledRequest, reading: StreamReader) -> None:
        """Tell of a request that is over, at once or later."""
        with self._lock:
            chunks_per_s = self._in_flight * _chunks_per_s(reading)
            self._in_flight -= 1
            # Where nothing else is under way nobody is kept waiting, and what comes next may wait for this record.
            if self._in_flight and chunks_per_s > BUSY_CHUNKS_PER_S and len(self._kept) < _MOST_KEPT:
                self._kept.append((job, reading))
                self._put(Done(job.place.tag))
                return
            self._tell_of(job, reading)
            if self._kept:
                # One with each: all at once would be a pause of its own.
                self._tell_of(*self._kept.popleft())

    def tell(self, what: Any) -> None:
        """Tell anything else."""
        with self._lock:
            self._put(what)

    def tell_kept(self) -> None:
        """Tell all that was kept; once the cell has ended, and its probe."""
        with self._lock:
            while self._kept:
                self._tell_of(*self._kept.popleft())

    def _tell_of(self, job: ScheduledRequest, reading: StreamReader) -> None:
        self._put(sample_of(self._client, job.place, reading, job.body))

    def _put(self, what: Any) -> None:
        # Pickled here, so that the thread that writes has nothing to do that needs the interpreter for long.
        self._written.put(ForkingPickler.dumps(what))

    def _write(self) -> None:
        while True:
            try:
                self._pipe.send_bytes(self._written.get())
            except OSError:
                return


def _chunks_per_s(reading: StreamReader) -> float:
    taken_s = (reading.ended_ns - reading.issued_ns) / 1e9
    return len(reading.token_ns) / taken_s if taken_s > 0 else 0.0
