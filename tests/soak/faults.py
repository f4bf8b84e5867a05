"""What may go wrong by order, and how a call that it strikes may end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

Draw = Callable[[Random], str]

# Statuses that openai's client raises at once, and those that it tries again.
_FINAL = (400, 401, 403, 404, 413, 422)
_PASSING = (408, 409, 429, 500, 502, 503, 504, 529)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of the emulator's faults."""

    draw: Draw
    ends: frozenset[str]
    """How a call that it strikes may end: see `asking.END`. That of the way in which it is left comes beside it."""
    breaks: bool = False
    """Whether it takes the connection from others that are on it."""
    impatient: bool = False
    """Whether it lasts for ever, so that the call needs a short time-out."""
    generating: bool = True
    """Whether endpoints that generate know it."""
    others: bool = False
    """Whether endpoints that generate nothing know it."""


def _ends(*names: str) -> frozenset[str]:
    return frozenset(names)


def _of(*texts: str) -> Draw:
    return lambda random: random.choice(texts)


def _after(kind: str) -> Draw:
    return lambda random: f"{kind};after={random.randrange(6)}"


def _status(random: Random) -> str:
    status = random.choice((*_FINAL, *_PASSING, *_PASSING))
    again = f";retry_after={random.choice((0.02, 0.1))}" if status in (429, 503) and random.random() < 0.7 else ""
    return f"status={status}{again}"


def _reset(random: Random) -> str:
    return f"reset;after={random.randrange(6)};code={random.randrange(14)}"


def _goaway(random: Random) -> str:
    kind = random.choice(("graceful", "hard", "hard;last=0"))
    return f"goaway={kind};after={random.randrange(4)}"


_BROKEN = _ends("answer", "connection")
_WELL = _ends("answer")

KINDS: Mapping[str, FaultKind] = {
    "status": FaultKind(draw=_status, ends=_ends("answer", "status"), others=True),
    "stall": FaultKind(draw=_after("stall"), ends=_ends("answer", "timeout"), impatient=True),
    "drop": FaultKind(draw=_after("drop"), ends=_BROKEN, breaks=True),
    "reset": FaultKind(draw=_reset, ends=_BROKEN, breaks=True),
    "goaway": FaultKind(draw=_goaway, ends=_BROKEN, breaks=True),
    "malformed": FaultKind(draw=_after("malformed"), ends=_ends("answer", "malformed")),
    "slow_headers": FaultKind(draw=_of("slow_headers=0.05", "slow_headers=0.3"), ends=_WELL, others=True),
    "idle_close": FaultKind(draw=_of("idle_close=0.01", "idle_close=0.1"), ends=_WELL, breaks=True),
    "idle_fin": FaultKind(draw=_of("idle_fin=0.01", "idle_fin=0.1"), ends=_WELL, breaks=True),
    # The end in good order of a whole answer's stream that has not all of its bytes is a broken one.
    "truncate": FaultKind(draw=_after("truncate"), ends=_ends("answer", "cut", "connection", "malformed")),
    "no_done": FaultKind(draw=_of("no_done"), ends=_WELL),
    "no_usage": FaultKind(draw=_of("no_usage"), ends=_WELL),
    "early_role": FaultKind(draw=_of("early_role"), ends=_WELL),
    "keepalive": FaultKind(draw=_of("keepalive=0.005", "keepalive=0.02"), ends=_WELL),
    "refuse": FaultKind(draw=_of("refuse"), ends=_BROKEN, breaks=True, others=True),
    "disconnect": FaultKind(draw=_of("disconnect"), ends=_BROKEN, breaks=True, others=True),
    "hang": FaultKind(draw=_of("hang"), ends=_ends("answer", "timeout"), impatient=True, others=True),
    "delayed": FaultKind(draw=_of("delayed=0.05", "delayed=0.3"), ends=_WELL, generating=False, others=True),
    "lost_answer": FaultKind(draw=_of("lost_answer"), ends=_BROKEN, breaks=True, generating=False, others=True),
    "misparse": FaultKind(draw=_of("misparse", "misparse=all"), ends=_ends("misread", "cut", "malformed")),
}


def kind_of(fault: str) -> str:
    """Return which kind a fault's text is of."""
    return fault.partition(";")[0].partition("=")[0]


def drawn(random: Random, *, generates: bool) -> str:
    """Draw a fault: of every kind that the endpoint knows, alike; once for the call, or on each of its attempts."""
    names = [name for name, kind in KINDS.items() if (kind.generating if generates else kind.others)]
    fault = KINDS[random.choice(names)].draw(random)
    return f"{fault};times=1" if random.random() < 0.6 else fault


def says_not_begun(fault: str) -> bool:
    """Whether the provider says of work that it may have begun that it has not: the client may then send it again.

    Of others on the connection: a GOAWAY names the stream of its own request as the last, whatever has begun behind it.
    Of the request itself: by REFUSED_STREAM.
    """
    return kind_of(fault) == "goaway" or "code=7" in fault
