"""What is done in which round: drawn by the seed, so that the same seed gives the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.soak import faults

FAULT_SHARE = 0.05

Way = Literal["threads", "wall", "tasks", "clients", "fork", "together"]
Api = Literal[
    "chat", "chat_parse", "chat_events", "chat_raw", "chat_bytes", "tool",
    "responses", "responses_parse", "responses_events", "completions", "embeddings",
]  # fmt: skip
Leave = Literal["whole", "close", "with", "drop", "cycle", "elsewhere", "timeout", "cancel", "gave_up"]
Target = Literal["h2", "h1", "routed"]

_APIS: tuple[tuple[Api, int], ...] = (
    ("chat", 40), ("responses", 18), ("chat_parse", 8), ("responses_parse", 5), ("chat_events", 5), ("chat_raw", 4),
    ("chat_bytes", 3), ("tool", 4), ("responses_events", 4), ("completions", 4), ("embeddings", 6),
)  # fmt: skip
STREAMED: frozenset[Api] = frozenset({"chat", "responses", "completions", "chat_events", "responses_events"})
_ALWAYS_STREAMED: frozenset[Api] = frozenset({"chat_events", "responses_events"})
_WAYS: tuple[tuple[Way, int], ...] = (("threads", 6), ("tasks", 7), ("clients", 4), ("together", 3))
_ROUTABLE: frozenset[Api] = frozenset({"chat", "chat_parse", "chat_events", "responses", "responses_parse", "tool"})
PROBING = "everything"
"""The plays that may ask a provider beforehand what it takes."""
PLAYS = ("default", "everything", "urgency", "hedging", "bounded")


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
    """After how long it is cancelled, closed by somebody else, or given up."""
    fault: str | None = None
    manner: str | None = None
    timeout_s: float = 60.0
    prefill_ms: int | None = None
    max_retries: int = 2
    deterministic: bool = False

    @property
    def text(self) -> str:
        """The prompt, which is also the answer: the nonce at both ends, and nothing of any other call."""
        return f"soak<{self.nonce}>{filling(self.nonce, self.size)}<{self.nonce}>"


def filling(nonce: str, size: int) -> str:
    """Text of so many characters that the nonce decides, and that shrinks like prose."""
    words = Random(nonce).choices(_WORDS, k=size // 5 + 1)
    return " ".join(words)[:size]


_WORDS = ("wind", "harbour", "of", "the", "lantern", "seven", "quiet", "rows", "and", "copper", "letters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Calls that are made in one way, by actors side by side; each actor makes its calls one after the other."""

    number: int
    way: Way
    asynchronous: bool
    loop: Literal["asyncio", "uvloop"]
    target: Target
    plays: str
    client: Literal["kept", "own", "dropped"]
    """A client of many rounds, or one of its own that is closed, or just dropped, at the scene's end."""
    runs: int
    """How many event loops are started and ended, one after the other, each with its share of the actors."""
    actors: tuple[tuple[Op, ...], ...]


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
    ways = random.choices([way for way, _ in _WAYS], [weight for _, weight in _WAYS], k=random.randint(2, 4))
    if number % 6 == 1:
        ways.append("wall")
    if number % 3 == 0:
        ways.append("fork")
    scenes = tuple(_scene(random, f"{seed:x}-{number}-{index}", index, way) for index, way in enumerate(ways))
    return Round(number=number, bare=number % 2 == 1, scenes=scenes)


def _scene(random: Random, prefix: str, number: int, way: Way) -> Scene:
    asynchronous = way == "tasks" or (way in ("clients", "together", "fork") and random.random() < 0.5)
    target: Target = random.choices(("h2", "h1", "routed"), (6, 2, 2))[0]
    plays = "routing" if target == "routed" else random.choice(PLAYS)
    if way == "together":
        target, plays = random.choice(("h2", "h1")), "urgency"
    count = {"threads": random.randint(3, 10), "wall": 64, "tasks": random.randint(6, 24), "clients": 3}.get(way, 4)
    each = {"wall": 1, "clients": 3, "together": 3, "fork": 2}.get(way, random.randint(2, 5))
    actors = []
    for actor in range(count):
        ops = []
        for index in range(each):
            own = f"{prefix}-{actor}-{index}"
            nonce = f"{prefix}-all-{index}" if way == "together" else own
            # Who asks together asks alike, but leaves as it likes.
            asked = Random(nonce) if way == "together" else random
            ops.append(_op(asked, random, own, nonce, asynchronous, target, plays, together=way == "together"))
        actors.append(tuple(ops))
    return Scene(
        number=number,
        way=way,
        asynchronous=asynchronous,
        loop=random.choice(("asyncio", "uvloop")),
        target=target,
        plays=plays,
        client="own" if way == "clients" else random.choices(("kept", "own", "dropped"), (7, 2, 1))[0],
        runs=random.randint(1, 4) if way == "tasks" else 1,
        actors=tuple(actors),
    )


def _op(
    asked: Random,
    random: Random,
    action: str,
    nonce: str,
    asynchronous: bool,
    target: Target,
    plays: str,
    *,
    together: bool,
) -> Op:
    known = [(api, weight) for api, weight in _APIS if target != "routed" or api in _ROUTABLE]
    api = asked.choices([api for api, _ in known], [weight for _, weight in known])[0]
    stream = api in _ALWAYS_STREAMED or (api in STREAMED and asked.random() < 0.6)
    size = asked.choices((20, 150, 600, 3_000, 14_000), (30, 40, 20, 7, 3))[0]
    if api.endswith("_parse") or api == "tool":
        size = min(size, 600)
    max_retries = asked.choices((2, 0, 1), (7, 2, 1))[0]
    fault = faults.drawn(asked, generates=api != "embeddings") if asked.random() < FAULT_SHARE else None
    manner = None
    if plays in ("everything", "urgency", "bounded") and api.endswith("_parse") and asked.random() < 0.4:
        manner = asked.choice(("echo,prose;tokens=80", "echo,whitespace;tokens=80", "echo,second;tokens=80"))
    timeout_s, prefill_ms = 60.0, None
    if fault is not None and faults.KINDS[faults.kind_of(fault)].impatient:
        timeout_s, max_retries = asked.choice((0.4, 0.8)), min(max_retries, 1)
    leave, delay_s, after = _left(random, api, stream, asynchronous)
    if leave == "timeout":
        # With others of the same request the time is this caller's own alone.
        timeout_s, max_retries = random.choice((0.1, 0.3, 0.6)), 0 if not together else max_retries
        prefill_ms = 2_000 if not together else None
    return Op(
        action=action,
        nonce=nonce,
        api=api,
        stream=stream,
        size=size,
        leave=leave,
        after=after,
        delay_s=delay_s,
        fault=fault,
        manner=manner,
        timeout_s=timeout_s,
        prefill_ms=prefill_ms,
        max_retries=max_retries,
        deterministic=together or plays == "urgency",
    )


def _left(random: Random, api: Api, stream: bool, asynchronous: bool) -> tuple[Leave, float, int]:
    if random.random() < 0.72:
        return "whole", 0.0, 0
    ways: list[Leave] = ["timeout"]
    if asynchronous:
        ways += ["cancel", "cancel", "gave_up"]
    if stream:
        ways += ["close", "with"]
        if api not in _ALWAYS_STREAMED:
            ways += ["drop", "cycle"]
            if not asynchronous:
                ways.append("elsewhere")
    delay_s = random.choice((0.0, 0.001, 0.005, 0.02, 0.05))
    return random.choice(ways), delay_s, random.randrange(12)
