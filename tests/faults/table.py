"""The table behind the fault matrix: what goes wrong, who makes it, what is expected, and which cells stand for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

from h2.errors import ErrorCodes

from tests.faults import scripts
from tests.faults.wire import Script

FORMS = ("sync", "async")
STREAMS = (False, True)
PROTOCOLS = ("HTTP/1.1", "HTTP/2")
PLAYS = ("off", "default", "all")

WAITING_READ_S = 2.0
"""The read timeout when the server sends nothing: as short as a busy machine allows."""
READ_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where ours does something else than the stock client on purpose, and why."""

    why: str
    raises: str | None = None
    """The error's class in place of the stock client's; None: a whole answer, equal to a good one."""
    form: str | None = None
    stream: bool | None = None
    protocol: str | None = None
    plays: tuple[str, ...] = PLAYS
    retries: int | None = None
    """Retries in place of the stock client's; None: any number up to its."""
    begun: int = 0
    """Generations that the server may begin, where that is more than for the stock client."""

    def holds(self, cell: Cell) -> bool:
        """Whether it is about a cell."""
        return (
            self.form in (None, cell.form)
            and self.stream in (None, cell.stream)
            and self.protocol in (None, cell.protocol)
            and cell.plays in self.plays
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    peer: Literal["none", "tls", "script", "emulator", "proxy"]
    """What causes it: a missing server, a server's TLS, a scripted server, the embedded provider, a proxy."""
    family: str = ""
    """Faults of one family differ in a number or a name alone: the covering part has each of them once, and all pairs
    of the other dimensions over the whole family."""
    script: Script | None = None
    """What the scripted server does with every request."""
    emulator: str = ""
    """The settings of the embedded provider."""
    proxy: bytes | None = None
    """What the proxy says to each client before it closes; None: nothing listens there."""
    tls: Literal["untrusted", "wrong host", "expired", "cut", "silent"] | None = None
    protocols: tuple[str, ...] = PROTOCOLS
    """The protocols that have such a thing."""
    plays: tuple[str, ...] = PLAYS
    """The sets of plays that it is run with; "unbroken" is `Unbroken` with `Connection`, "installed" is the default
    plays in a client that is made of openai's class after `install()`."""
    only_streams: bool = False
    """Whether it is about events: an unstreamed answer is a good one."""
    read_s: float = READ_S
    bound_s: float = 30.0
    """Seconds within which the call must be over, on a busy machine: all attempts, and the pauses between them."""
    is_large: bool = False
    is_held_back: bool = False
    """Whether a gateway makes the stream arrive in bursts, which the record says."""
    hops: int = 0
    """Requests that one attempt takes beyond the first."""
    begins: bool = True
    """Whether the embedded provider has begun what it has admitted; not where it says itself that it had not."""
    differs: tuple[Difference, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether the client's read timeout ends it."""
        return self.read_s < READ_S


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One fault under one kind of call."""

    fault: str
    form: str
    stream: bool
    protocol: str
    plays: str

    def __str__(self) -> str:
        answer = "streamed" if self.stream else "whole"
        return f"{self.fault} | {self.form} | {answer} | {self.protocol} | {self.plays}"


_H2 = ("HTTP/2",)
_OURS = ("default", "all")
_ALL = ("all",)
_DEADLINE = "`Routing` gives all attempts of a call one deadline"
_LATE = Difference(raises="APITimeoutError", plays=_ALL, retries=0, why=_DEADLINE)
_HEAD = Difference(
    raises="APITimeoutError",
    plays=("default",),
    retries=2,
    begun=3,
    why="the read timeout covers the whole head; then retried as any timeout",
)

STATUSES = (408, 409, 429, 500, 502, 503, 504)


def _script(name: str, script: Script, **more: object) -> Fault:
    return Fault(name=name, peer="script", script=script, **more)  # type: ignore[arg-type]


def _emulated(name: str, emulator: str, **more: object) -> Fault:
    return Fault(name=name, peer="emulator", emulator=emulator, **more)  # type: ignore[arg-type]


def _waiting(name: str, script: Script, **more: object) -> Fault:
    return _script(name, script, read_s=WAITING_READ_S, bound_s=40.0, **more)


def _connections() -> Iterator[Fault]:
    yield Fault(name="connect refused", peer="none", family="connect")
    yield Fault(name="DNS failure", peer="none", family="connect")
    yield Fault(name="TLS: untrusted", peer="tls", tls="untrusted", family="certificate")
    yield Fault(name="TLS: wrong host", peer="tls", tls="wrong host", family="certificate")
    yield Fault(name="TLS: expired", peer="tls", tls="expired", family="certificate")
    yield Fault(name="TLS: handshake cut", peer="tls", tls="cut")
    yield Fault(
        name="TLS: handshake stalls", peer="tls", tls="silent", read_s=WAITING_READ_S, bound_s=40.0, differs=(_LATE,)
    )


def _proxies() -> Iterator[Fault]:
    answers = {
        "refused": None,
        "407": b"HTTP/1.1 407 Authenticate\r\ncontent-length: 0\r\n\r\n",
        "502": b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nbad",
        "503": b"HTTP/1.1 503 Unavailable\r\n\r\n",
        "malformed answer": b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        "cut": b"HTTP/1.1 20",
    }
    for name, answer in answers.items():
        yield Fault(name=f"proxy: {name}", peer="proxy", proxy=answer, family="proxy")


def _transport() -> Iterator[Fault]:
    yield _script("reset before headers", scripts.reset_before_headers)
    yield _script("reset before headers, once", scripts.reset_once)
    yield _script("reset mid-body", scripts.reset_mid_body)
    yield _waiting("stall before headers", scripts.stall_before_headers, differs=(_LATE,))
    yield _waiting("stall mid-stream", scripts.stall_mid_body, differs=(replace(_LATE, stream=False),))
    broken = Difference(
        raises="APIConnectionError",
        protocol="HTTP/2",
        stream=False,
        plays=_OURS,
        retries=2,
        begun=3,
        why="an error of openai's instead of a library's, as over HTTP/1.1",
    )
    differs = (broken, replace(broken, stream=True, retries=0, begun=0))
    yield _script("truncated chunk", scripts.truncated, differs=differs)
    yield _waiting("slow-loris: head dripped", scripts.dripped_head, differs=(_LATE, _HEAD))
    yield _waiting("slow-loris: body dripped", scripts.dripped_body, differs=(replace(_LATE, stream=False),))


def _bodies() -> Iterator[Fault]:
    yield _script("malformed SSE", scripts.malformed_events)
    yield _script("invalid JSON", scripts.invalid_json)
    yield _script("invalid UTF-8", scripts.invalid_utf8)
    yield _script("wrong content type", scripts.wrong_content_type)
    yield _script("a page with 200", scripts.a_page)
    yield _script("empty answer", scripts.empty)
    yield _script("duplicate [DONE]", scripts.duplicate_done, only_streams=True)
    yield _emulated("missing [DONE]", "no_done", only_streams=True)
    estimated = Difference(
        plays=_ALL,
        stream=False,
        retries=0,
        why="streamed underneath: usage is estimated (`usage.estimated`)",
    )
    yield _emulated("usage missing", "no_usage", differs=(estimated,))
    yield _script("100 MB answer", scripts.large, is_large=True, bound_s=300.0, read_s=60.0)
    bomb = Difference(
        raises="APIConnectionError",
        stream=False,
        plays=_OURS,
        retries=2,
        begun=3,
        why="decompression is limited; a whole answer is retried, as any that cannot be decoded",
    )
    differs = (bomb, replace(bomb, stream=True, retries=0, begun=0))
    yield _script("gzip bomb", scripts.gzip_bomb, is_large=True, bound_s=300.0, read_s=60.0, differs=differs)


def _statuses() -> Iterator[Fault]:
    for status in STATUSES:
        yield _emulated(f"{status}", f"status={status}", family="status")
        yield _emulated(f"{status} with retry-after", f"status={status};retry_after=0.2", family="status")
    for status in (429, 503):
        yield _emulated(f"{status} once", f"status={status};retry_after=0.2;times=1", family="status")
    for status in (301, 302, 307, 308):
        for elsewhere in (False, True):
            where = "to another origin" if elsewhere else "to the same origin"
            script = partial(scripts.redirect, status=status, elsewhere=elsewhere)
            yield _script(f"{status} {where}", script, family="redirect", hops=1)


def _broken_streams() -> Iterator[Fault]:
    """Streams that break, which one play continues or ends sooner."""
    plays = ("default", "unbroken")
    repeated = Difference(
        plays=("unbroken",), retries=1, begun=2, why="`Unbroken` repeats a stream that has had no output"
    )
    yield _emulated(
        "stream reset before output, once",
        "reset;after=0;times=1",
        only_streams=True,
        plays=plays,
        protocols=_H2,
        differs=(repeated,),
    )
    early = replace(repeated, raises="StalledStreamError", retries=0, begun=1, why="`Unbroken` notices the stall")
    yield _emulated(
        "stream stalls after output",
        "stall;after=2",
        only_streams=True,
        plays=plays,
        read_s=WAITING_READ_S,
        bound_s=40.0,
        differs=(early,),
    )


def _where_people_are() -> Iterator[Fault]:
    """A gateway that buffers, and programs that are not changed: `install()` is what `fastlane run` calls."""
    yield _script("held back in bursts", scripts.held_back, only_streams=True, plays=("default",), is_held_back=True)
    installed: dict[str, Any] = {"plays": ("installed",), "family": "installed"}
    yield Fault(name="unmodified program: connect refused", peer="none", **installed)
    yield _script("unmodified program: reset before headers, once", scripts.reset_once, **installed)
    yield _script("unmodified program: reset mid-body", scripts.reset_mid_body, **installed)
    yield _emulated("unmodified program: 429 with retry-after", "status=429;retry_after=0.2", **installed)


def _frames() -> Iterator[Fault]:
    finished = Difference(
        plays=_OURS,
        retries=0,
        why="the server finishes what it has begun (RFC 9113, 6.8)",
    )
    yield _emulated("GOAWAY graceful, mid-stream", "goaway=graceful;after=2", protocols=_H2, differs=(finished,))
    yield _emulated("GOAWAY hard, mid-stream", "goaway=hard;after=2", protocols=_H2)
    yield _emulated(
        "GOAWAY hard, request not begun",
        "goaway=hard;after=0;last=0",
        protocols=_H2,
        begins=False,
    )
    for code in ErrorCodes:
        script = partial(scripts.reset_stream, code=code)
        yield _script(f"RST {code.name}, before headers", script, family="rst", protocols=_H2)
        yield _emulated(f"RST {code.name}, mid-stream", f"reset;after=2;code={code:d}", family="rst", protocols=_H2)


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for part in (_connections, _proxies, _transport, _bodies, _statuses, _broken_streams, _where_people_are, _frames)
    for fault in part()
}


def applicable() -> list[Cell]:
    """Return every cell that means something: HTTP/1.1 has no such frames, and whole answers no events."""
    return [
        Cell(fault.name, form, stream, protocol, plays)
        for fault in FAULTS.values()
        for protocol in fault.protocols
        for form in FORMS
        for stream in STREAMS
        for plays in fault.plays
        if stream or plays == "all" or not fault.only_streams
    ]


def pairs(cell: Cell) -> frozenset[object]:
    """Return the pairs of values of a cell. Faults of one family differ in a number alone, and share their pairs."""
    axes = (("form", cell.form), ("stream", cell.stream), ("protocol", cell.protocol), ("plays", cell.plays))
    if FAULTS[cell.fault].family:
        return frozenset([*combinations(axes, 2), cell.fault])
    return frozenset(combinations([cell.fault, *axes], 2))


def covering() -> list[Cell]:
    """Return the cells that stand for all: of each family they have every pair that any of its cells has."""
    families: dict[str, list[Cell]] = {}
    for cell in applicable():
        families.setdefault(FAULTS[cell.fault].family or cell.fault, []).append(cell)
    chosen = []
    for members in families.values():
        missing = frozenset[object]().union(*map(pairs, members))
        while missing:
            chosen.append(max(members, key=lambda cell: len(pairs(cell) & missing)))
            missing -= pairs(chosen[-1])
    return chosen
