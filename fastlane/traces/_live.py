"""Follow the trace files of running applications: a row for each call, what made slow ones slow, and what was saved."""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any, Final

from .._clock import now_ns, wall_ns
from ..pages import html_page
from ..records.formatting import duration
from ..telemetry.trace_files import RUNNING_SUFFIX
from ._entries import entries
from ._model import Span, TraceCall
from ._otlp import TraceFileError, read_spans

_MOST_ROWS: Final = 500
_MOST_TRACES: Final = 2_000
_MOST_SHOWN: Final = 20_000
_LATEST: Final = 100
"""Earlier calls of a model that a new one is compared with."""
_LEAST: Final = 5
SLOW: Final = 1.5
"""A call is slow from so many times the median of the model's calls before it."""
_LEAST_SHARE: Final = 0.2
"""Of the time to the first token: what took less does not explain a slow call."""
_READ_AT_ONCE: Final = 8 << 20
_STALE_NS: Final = 5_000_000_000
"""A process that has not written its running calls for so long has ended or hangs."""
_GRACE_NS: Final = 1_500_000_000
"""A call that runs no more keeps its row for so long: its span is written a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCall:
    """One call. None is unknown, and what is known only when a call has ended."""

    at_ms: float
    model: str
    duration_s: float
    """Until now, of a call that runs."""
    time_to_first_token_s: float | None
    tokens_per_second: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    price: float | None = None
    """In the catalog's currency."""
    connection_reused: bool | None = None
    attempts: int
    error: str | None = None
    is_slow: bool
    is_running: bool = False
    reasons: tuple[str, ...]
    """What a slow call waited for, and why the provider's cache was missed; of a running call how far it is."""


@dataclass(slots=True)
class Saved:
    calls: int = 0
    failed: int = 0
    slow: int = 0
    cached_tokens: int = 0
    input_tokens: int = 0
    reused: int = 0
    opening_s: float = 0.0
    """What these would have spent on one: the median of those that were opened, for each."""


@dataclass(slots=True)
class Follower:
    """Reads what applications add to the trace files of a directory. Threads may share it."""

    directory: Path
    rows: dict[str, LiveCall] = field(default_factory=dict)
    """The latest calls by their span, in the order in which they were first seen."""
    saved: Saved = field(default_factory=Saved)
    _files: dict[Path, tuple[int, bytes]] = field(default_factory=dict)
    """How far each file was read, and the beginning of a line that is not whole yet."""
    _spans: dict[str, dict[tuple[str, str], Span]] = field(default_factory=dict)
    _shown: dict[str, None] = field(default_factory=dict)
    """Calls that have had their row: a long user action comes again with each of its calls."""
    _times: dict[str, deque[float]] = field(default_factory=dict)
    _openings: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))
    _running: dict[float, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    """By the start of a call: when it was last seen to run, and what its process has written of it."""
    _lock: Lock = field(default_factory=Lock)

    def skip(self) -> None:
        for path in self.directory.glob("*.jsonl"):
            with suppress(OSError):
                self._files[path] = (path.stat().st_size, b"")

    def poll(self) -> list[LiveCall]:
        """Read what was added since, and return the calls that are new."""
        with self._lock:
            changed = dict[str, None]()
            for span in (span for path in sorted(self.directory.glob("*.jsonl")) for span in self._added(path)):
                # The traces that were written to last are last.
                trace = self._spans[span.trace_id] = self._spans.pop(span.trace_id, {})
                trace[span.key] = span
                changed[span.trace_id] = None
            found = {
                call.span.span_id: call
                for each in changed
                for entry in entries(self._spans[each].values())
                for call in entry.calls
                if call.span.span_id not in self._shown
            }
            self._shown |= dict.fromkeys(found)
            rows = {name: self._row(call) for name, call in found.items()}
            self.rows |= rows
            for kept, most in ((self._spans, _MOST_TRACES), (self._shown, _MOST_SHOWN), (self.rows, _MOST_ROWS)):
                for name in list(kept)[:-most]:
                    del kept[name]
            return list(rows.values())

    def running(self) -> list[LiveCall]:
        with self._lock:
            for path in self.directory.glob(f"*{RUNNING_SUFFIX}"):
                # A file may be replaced meanwhile, or be another program's.
                with suppress(OSError, ValueError, TypeError, KeyError):
                    written = json.loads(path.read_bytes())
                    if wall_ns() - written["at_ns"] < _STALE_NS:
                        self._running |= {call["start_ns"] / 1e6: (now_ns(), call) for call in written["calls"]}
            ended = {row.at_ms for row in self.rows.values()}
            self._running = {
                at_ms: (seen_ns, call)
                for at_ms, (seen_ns, call) in self._running.items()
                if at_ms not in ended and now_ns() - seen_ns <= _GRACE_NS
            }
            return [self._running_row(at_ms, call) for at_ms, (_, call) in sorted(self._running.items())]

    def _running_row(self, at_ms: float, call: dict[str, Any]) -> LiveCall:
        model, first_s, attempts, chunks = (call[name] for name in ("model", "first_token_s", "attempts", "chunks"))
        elapsed_s = max(0.0, wall_ns() / 1e9 - at_ms / 1e3)
        return LiveCall(
            at_ms=at_ms,
            model=model or "(no model)",
            duration_s=elapsed_s,
            time_to_first_token_s=first_s,
            attempts=attempts,
            is_slow=_is_slow(self._before(model, call["stream"]), elapsed_s if first_s is None else first_s),
            is_running=True,
            reasons=(f"{chunks:,} chunks" if chunks else "no token yet" if attempts else "not sent yet",),
        )

    def _before(self, model: str, is_stream: bool) -> deque[float]:
        """Return the times of a model's latest calls. Those of streams and of whole answers are not comparable."""
        return self._times.setdefault(f"{model} {is_stream}", deque(maxlen=_LATEST))

    def _added(self, path: Path) -> tuple[Span, ...]:
        read, rest = self._files.get(path, (0, b""))
        try:
            with path.open("rb") as opened:
                if opened.seek(0, 2) < read:
                    read, rest = 0, b""  # another file of the same name
                opened.seek(read)
                data = opened.read(_READ_AT_ONCE)
        except OSError:
            return ()
        whole, newline, rest = (rest + data).rpartition(b"\n")
        self._files[path] = (read + len(data), rest)
        try:
            return read_spans(whole + newline, path.name).spans if newline else ()
        except TraceFileError:
            return ()

    def _row(self, call: TraceCall) -> LiveCall:
        model = call.response_model or call.model or "(no model)"
        duration_s = call.span.seconds
        measured_s = duration_s if call.time_to_first_token_s is None else call.time_to_first_token_s
        before = self._before(model, call.time_to_first_token_s is not None)
        is_slow = _is_slow(before, measured_s)
        if call.error is None:
            before.append(measured_s)
        saved = self.saved
        saved.calls += 1
        saved.failed += call.error is not None
        saved.slow += is_slow
        saved.cached_tokens += call.cached_tokens or 0
        saved.input_tokens += call.input_tokens or 0
        saved.reused += bool(call.connection_reused)
        if not call.connection_reused and (opening_s := _opening_s(call)):
            self._openings.append(opening_s)
        saved.opening_s = saved.reused * (median(self._openings) if self._openings else 0.0)
        return LiveCall(
            at_ms=call.span.start_ns / 1e6,
            model=model,
            duration_s=duration_s,
            time_to_first_token_s=call.time_to_first_token_s,
            tokens_per_second=call.tokens_per_second,
            input_tokens=call.input_tokens,
            cached_tokens=call.cached_tokens,
            price=call.span.number("fastlane.route.price"),
            connection_reused=call.connection_reused,
            attempts=call.attempt_count or 1,
            error=call.error,
            is_slow=is_slow,
            reasons=tuple(reasons(call, measured_s if is_slow else None)),
        )


def _is_slow(before: Sequence[float], measured_s: float) -> bool:
    return len(before) >= _LEAST and measured_s > SLOW * median(before)


def _opening_s(call: TraceCall) -> float:
    return sum(call.durations_s.get(name, 0.0) for name in ("dns", "connect", "proxy", "tls"))


def reasons(call: TraceCall, waited_s: float | None) -> Iterator[str]:
    """Return what a call waited for, where it is slow and waited `waited_s`, and why a cache was missed."""
    if waited_s is not None:
        spent = call.durations_s
        statuses = [str(each.status_code or "connection lost") for each in call.attempts if each.error is not None]
        parts = {
            "new connection": _opening_s(call),
            "queue": spent.get("queue", 0.0),
            "server": spent.get("server", 0.0) + spent.get("unsplit", 0.0),
            ", ".join(dict.fromkeys(statuses)) or "retry": spent.get("retries", 0.0),
        }
        for name, seconds in sorted(parts.items(), key=lambda part: -part[1]):
            if seconds >= _LEAST_SHARE * waited_s:
                yield f"{name} {duration(seconds)}"
    if call.cache_miss is not None:
        lost = f", {call.cache_lost_tokens:,} tokens" if call.cache_lost_tokens else ""
        where = f" in {call.cache_miss_path}" if call.cache_miss_path else ""
        yield f"cache miss: {call.cache_miss.replace('_', ' ')}{where}{lost}"


class LiveServer(ThreadingHTTPServer):
    """Serves the page of a follower on loopback, to those who know its address."""

    daemon_threads = True

    def __init__(self, follower: Follower, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.follower = follower
        self.secret = secrets.token_urlsafe(16)
        """A part of the address: other users of the machine do not know it, and other pages cannot guess it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.secret}/"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        follower = self.server.follower
        if self.path == f"/{self.server.secret}/":
            page = html_page(
                "fastlane.traces",
                name="live", title="fastlane live", extra="cli", asks=True, directory=follower.directory,
            )  # fmt: skip
            self._answer("text/html; charset=utf-8", page)
        elif self.path == f"/{self.server.secret}/calls":
            follower.poll()
            rows = (*follower.rows.copy().values(), *follower.running())
            data = {"saved": asdict(follower.saved), "calls": [asdict(row) for row in rows]}
            self._answer("application/json", json.dumps(data))
        else:
            self.send_error(404)

    def _answer(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the address is a secret."""
