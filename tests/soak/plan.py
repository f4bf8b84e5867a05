"""What is done in which round: drawn by the seed, so that the same seed gives the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

FAULT_SHARE = 0.05

Way = Literal["threads", "wall", "tasks", "clients", "fork", "together"]
Api = Literal[
    "chat", "chat_parse", "chat_events", "chat_raw", "chat_bytes", "tool",
    "responses", "responses_parse", "responses_events", "completions", "embeddings",
]  # fmt: skip
Leave = Literal["whole", "close", "with", "drop", "cycle", "elsewhere", "timeout", "cancel", "gave_up"]
Target = Literal["h2", "h1", "routed"]

_APIS: dict[Api, int] = {
    "chat": 40, "responses": 18, "chat_parse": 8, "responses_parse": 5, "chat_events": 5, "chat_raw": 4,
    "chat_bytes": 3, "tool": 4, "responses_events": 4, "completions": 4, "embeddings": 6,
}  # fmt: skip
STREAMED: frozenset[Api] = frozenset({"chat", "responses", "completions", "chat_events", "responses_events"})
EVENTS: frozenset[Api] = frozenset({"chat_events", "responses_events"})
_ROUTABLE: frozenset[Api] = frozenset({"chat", "chat_parse", "chat_events", "responses", "responses_parse", "tool"})
_WAYS: dict[Way, int] = {"threads": 6, "tasks": 7, "clients": 4, "together": 3}
PROBING = "everything"
"""The plays that may ask a provider beforehand what it takes."""
PLAYS = ("default", "everything", "urgency", "hedging", "bounded")
_WORDS = ("wind", "harbour", "of", "the", "lantern", "seven", "quiet", "rows", "and", "copper", "letters")


class FaultKind(NamedTuple):
    """One kind of the emulator's faults."""

    forms: tuple[str, ...]
    ends: frozenset[str]
    """How a call that it strikes may end: see `asking.ENDS`."""
    breaks: bool = False
    """Whether it takes the connection from others that are on it."""
    impatient: bool = False
    """Whether it lasts for ever, so that the call needs a short timeout."""
    generating: bool = True
    """Whether endpoints that generate know it."""
    others: bool = False
    """Whether endpoints that generate nothing know it."""


def _after(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind};after={after}" for after in range(6))


_PASSING = (408, 409, 429, 500, 502, 503, 504, 529)
_STATUSES = (
    *(f"status={status}" for status in (400, 401, 403, 404, 413, 422, *_PASSING, *_PASSING)),
    *(f"status={status};retry_after={after_s}" for status in (429, 503) for after_s in (0.02, 0.1)),
)
_WELL = frozenset({"answer"})
_BROKEN = _WELL | {"connection"}

FAULTS: dict[str, FaultKind] = {
    "status": FaultKind(_STATUSES, _WELL | {"status"}, others=True),
    "stall": FaultKind(_after("stall"), _WELL | {"timeout"}, impatient=True),
    "drop": FaultKind(_after("drop"), _BROKEN, breaks=True),
    "reset": FaultKind(
        tuple(f"{form};code={code}" for form in _after("reset") for code in range(14)), _BROKEN, breaks=True
    ),
    "goaway": FaultKind(
        tuple(f"goaway={kind};after={after}" for kind in ("graceful", "hard", "hard;last=0") for after in range(4)),
        _BROKEN,
        breaks=True,
    ),
    "malformed": FaultKind(_after("malformed"), _WELL | {"malformed"}),
    "slow_headers": FaultKind(("slow_headers=0.05", "slow_headers=0.3"), _WELL, others=True),
    "idle_close": FaultKind(("idle_close=0.01", "idle_close=0.1"), _WELL, breaks=True),
    "idle_fin": FaultKind(("idle_fin=0.01", "idle_fin=0.1"), _WELL, breaks=True),
    # The end in good order of a whole answer's stream that has not all of its bytes is a broken one.
    "truncate": FaultKind(_after("truncate"), _BROKEN | {"cut", "malformed"}),
    "no_done": FaultKind(("no_done",), _WELL),
    "no_usage": FaultKind(("no_usage",), _WELL),
    "early_role": FaultKind(("early_role",), _WELL),
    "keepalive": FaultKind(("keepalive=0.005", "keepalive=0.02"), _WELL),
    "refuse": FaultKind(("refuse",), _BROKEN, breaks=True, others=True),
    "disconnect": FaultKind(("disconnect",), _BROKEN, breaks=True, others=True),
    "hang": FaultKind(("hang",), _WELL | {"timeout"}, impatient=True, others=True),
    "delayed": FaultKind(("delayed=0.05", "delayed=0.3"), _WELL, generating=False, others=True),
    "lost_answer": FaultKind(("lost_answer",), _BROKEN, breaks=True, generating=False, others=True),
    "misparse": FaultKind(("misparse", "misparse=all"), frozenset({"misread", "cut", "malformed", "invalid"})),
}


def kind_of(fault: str) -> str:
    """Return which kind a fault's text is of."""
    return fault.partition(";")[0].partition("=")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One call, and how it is left."""

    action: str
    """Unique in the run: the name of the user action around it, by which its record is known."""
    nonce: str
    """What is sent and has to come back; calls that are made together share one."""
    api: Api
    stream: bool
    size: int
    """Characters of the prompt beyond the nonce."""
    leave: Leave = "whole"
    after: int = 0
    """Pieces that are read of a stream before it is left."""
    delay_s: float = 0.0
    """After how long it is cancelled, closed by another thread, or given up."""
    fault: str | None = None
    manner: str | None = None
    timeout_s: float = 60.0
    prefill_ms: int | None = None
    max_retries: int = 2
    deterministic: bool = False

    @property
    def text(self) -> str:
        """The prompt, which is also the answer: the nonce at both ends, and nothing of any other call."""
        filling = " ".join(Random(self.nonce).choices(_WORDS, k=self.size // 5 + 1))[: self.size]
        return f"soak<{self.nonce}>{filling}<{self.nonce}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Calls by actors side by side; each actor makes its calls one after the other."""

    number: int = -1
    way: Way
    asynchronous: bool = False
    loop: Literal["asyncio", "uvloop"] = "asyncio"
    target: Target = "h2"
    plays: str = "default"
    client: Literal["kept", "own", "dropped"] = "own"
    """A client of many rounds, or one of its own that is closed, or just dropped, at the scene's end."""
    runs: int = 1
    """How many event loops are started and ended, one after the other, each with its share of the actors."""
    actors: tuple[tuple[Op, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Scenes that go on side by side. After a `bare` one every client is closed, and nothing may be left."""

    number: int
    bare: bool
    scenes: tuple[Scene, ...]

    @property
    def ops(self) -> tuple[Op, ...]:
        """All calls of the round."""
        return tuple(op for scene in self.scenes for actor in scene.actors for op in actor)


def round_of(seed: int, number: int) -> Round:
    """Draw one round."""
    random = Random(f"{seed}:{number}")
    ways = random.choices([*_WAYS], [*_WAYS.values()], k=random.randint(2, 4))
    if number % 6 == 1:
        ways.append("wall")
    if number % 3 == 0:
        ways.append("fork")
    scenes = tuple(_scene(random, f"{seed:x}-{number}-{index}", index, way) for index, way in enumerate(ways))
    return Round(number=number, bare=number % 2 == 1, scenes=scenes)


def _scene(random: Random, prefix: str, number: int, way: Way) -> Scene:
    together = way == "together"
    asynchronous = way == "tasks" or (way in ("clients", "together", "fork") and random.random() < 0.5)
    target: Target = random.choices(("h2", "h1", "routed"), (6, 2, 2))[0]
    plays = "routing" if target == "routed" else random.choice(PLAYS)
    if together:
        target, plays = random.choice(("h2", "h1")), "urgency"
    count = {"threads": random.randint(3, 10), "wall": 64, "tasks": random.randint(6, 24), "clients": 3}.get(way, 4)
    each = {"wall": 1, "clients": 3, "together": 3, "fork": 2}.get(way, random.randint(2, 5))
    return Scene(
        number=number,
        way=way,
        asynchronous=asynchronous,
        loop=random.choice(("asyncio", "uvloop")),
        target=target,
        plays=plays,
        client="own" if way == "clients" else random.choices(("kept", "own", "dropped"), (7, 2, 1))[0],
        runs=random.randint(1, 4) if way == "tasks" else 1,
        actors=tuple(
            tuple(
                _op(random, f"{prefix}-{actor}-{index}", f"{prefix}-all-{index}" if together else None,
                    asynchronous=asynchronous, target=target, plays=plays)
                for index in range(each)
            )
            for actor in range(count)
        ),
    )  # fmt: skip


def _op(random: Random, action: str, shared: str | None, *, asynchronous: bool, target: Target, plays: str) -> Op:
    """Draw a call; with a nonce that is shared, callers ask alike, but each leaves as it likes."""
    asked = random if shared is None else Random(shared)
    known = {api: weight for api, weight in _APIS.items() if target != "routed" or api in _ROUTABLE}
    api = asked.choices([*known], [*known.values()])[0]
    stream = api in EVENTS or (api in STREAMED and asked.random() < 0.6)
    size = asked.choices((20, 150, 600, 3_000, 14_000), (30, 40, 20, 7, 3))[0]
    if api.endswith("_parse") or api == "tool":
        size = min(size, 600)
    max_retries = asked.choices((2, 0, 1), (7, 2, 1))[0]
    fault = _fault(asked, generates=api != "embeddings") if asked.random() < FAULT_SHARE else None
    manner = None
    if plays in ("everything", "urgency", "bounded") and api.endswith("_parse") and asked.random() < 0.4:
        manner = asked.choice(("echo,prose;tokens=80", "echo,whitespace;tokens=80", "echo,second;tokens=80"))
    timeout_s, prefill_ms = 60.0, None
    if fault is not None and FAULTS[kind_of(fault)].impatient:
        timeout_s, max_retries = asked.choice((0.4, 0.8)), min(max_retries, 1)
    leave = _leave(random, api, stream, asynchronous)
    if leave == "timeout":
        # With others of the same request the time is this caller's own alone.
        timeout_s = random.choice((0.1, 0.3, 0.6))
        if shared is None:
            max_retries, prefill_ms = 0, 2_000
    return Op(
        action=action,
        nonce=shared or action,
        api=api,
        stream=stream,
        size=size,
        leave=leave,
        after=random.randrange(12),
        delay_s=random.choice((0.0, 0.001, 0.005, 0.02, 0.05)),
        fault=fault,
        manner=manner,
        timeout_s=timeout_s,
        prefill_ms=prefill_ms,
        max_retries=max_retries,
        deterministic=plays == "urgency",
    )


def _fault(random: Random, *, generates: bool) -> str:
    """Draw a fault: of every kind that the endpoint knows, alike; once for the call, or on each of its attempts."""
    kinds = [kind for kind in FAULTS.values() if (kind.generating if generates else kind.others)]
    fault = random.choice(random.choice(kinds).forms)
    return f"{fault};times=1" if random.random() < 0.6 else fault


def _leave(random: Random, api: Api, stream: bool, asynchronous: bool) -> Leave:
    if random.random() < 0.72:
        return "whole"
    ways: list[Leave] = ["timeout"]
    if asynchronous:
        ways += ["cancel", "cancel", "gave_up"]
    if stream:
        ways += ["close", "with"]
        if api not in EVENTS:
            ways += ["drop", "cycle"] if asynchronous else ["drop", "cycle", "elsewhere"]
    return random.choice(ways)
