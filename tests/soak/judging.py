"""Lost, doubled, crossed: what the application saw, what the records say and what the providers did, held together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from fastlane.emulator import RequestLog
from tests.soak import faults
from tests.soak.plan import PROBING, Leave, Op, Round

# How a call may end for being left so, whatever else.
_LEFT: Mapping[Leave, frozenset[str]] = {
    "whole": frozenset({"answer"}),
    "close": frozenset({"part"}),
    "with": frozenset({"part"}),
    "drop": frozenset({"part"}),
    "cycle": frozenset({"part"}),
    "elsewhere": frozenset({"part", "connection", "closed"}),
    "timeout": frozenset({"answer", "part", "timeout"}),
    "cancel": frozenset({"answer", "part", "cancelled"}),
    "gave_up": frozenset({"answer", "part", "gave_up"}),
}
_FAILED = frozenset({"failed"})
# The answer had come, and then it could not be read.
_FAILED_LATER = frozenset({"failed", "completed", "stopped", "truncated"})
# Which outcomes a record may have where the application saw this.
_OUTCOMES: Mapping[str, frozenset[str]] = {
    "answer": frozenset({"completed", "stopped"}),
    "part": frozenset({"closed", "abandoned", "completed", "stopped", "truncated"}),
    "cut": frozenset({"truncated"}),
    "misread": frozenset({"completed", "stopped", "truncated"}),
    "cancelled": frozenset({"cancelled", "closed", "abandoned"}),
    "gave_up": frozenset({"cancelled", "closed", "abandoned"}),
    "status": _FAILED,
    "connection": _FAILED,
    "timeout": _FAILED,
    "malformed": _FAILED_LATER,
    "invalid": _FAILED_LATER,
}
_AGAIN = frozenset({408, 409, 429})
_REMEMBERED_ROUNDS = 4
FLATNESS = 0.05
WARM_UP = 1 / 3
_BREAKING = frozenset(name for name, kind in faults.KINDS.items() if kind.breaks)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that must not be."""

    kind: str
    what: str
    round: int
    details: Any = None


@dataclass
class _Nonce:
    """What is known of one nonce: how often it was sent by the records, and what came of it at the providers."""

    plan: list[Op] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    answers: int = 0
    probes: bool = False
    """Whether its client may ask before it what the provider takes."""
    log: list[tuple[int, RequestLog]] = field(default_factory=list)
    """Each with the number of its provider."""


# What `Routing` logs of a model whose connection failed, or that refused a call: where faults do that it is true.
_UNREACHABLE = "of the catalog could not be connected to"
_REFUSED = re.compile(r"of the catalog answered (\d+) at")


class Judge:
    """Takes one round after the other."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.ends: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.calls = self.requests = self.billed = 0
        self.unreachable = 0
        """How often routing said that a model could not be connected to."""
        self.said_to_refuse = 0
        """How often routing said that a model was refused, with the status that a fault had."""
        self.late = 0
        """Calls that a fault struck on one way, and that routing gave up on another whose first token was late."""
        self.longest = (0.0, "")
        self._nonces: dict[int, dict[str, _Nonce]] = {}
        self._broken: deque[tuple[int, tuple[int, str]]] = deque()
        self._doubted: set[str] = set()
        self._lying: set[tuple[int, str]] = set()

    def round_is_over(self, drawn: Round, told: Mapping[str, Any], logs: Sequence[Iterable[RequestLog]]) -> None:
        """Judge one round: by its plan, by what the process told, and by the provider's logs since the last one."""
        before = len(self.failures)
        number = drawn.number
        nonces = self._nonces[number] = defaultdict(_Nonce)
        for old in [each for each in self._nonces if each <= number - _REMEMBERED_ROUNDS]:
            del self._nonces[old]
        for scene in drawn.scenes:
            for op in (op for actor in scene.actors for op in actor):
                nonces[op.nonce].plan.append(op)
                nonces[op.nonce].probes = scene.plays == PROBING
        self._read_logs(number, logs)
        self._records(drawn, told, nonces)
        self._applications(drawn, told, nonces)
        for each in self._nonces.values():
            for nonce, known in each.items():
                self._doubled(number, nonce, known)
        struck = [op.fault for scene in drawn.scenes for ops in scene.actors for op in ops if op.fault]
        for kind in ("left", "wrong", "noises"):
            for what in told[kind]:
                refused = _REFUSED.search(what)
                if kind == "noises" and struck and _UNREACHABLE in what:
                    self.unreachable += 1
                elif kind == "noises" and refused and any(f"status={refused[1]}" in fault for fault in struck):
                    self.said_to_refuse += 1
                else:
                    self._fail(kind, what, number)
        assert len(self.failures) >= before

    def _fail(self, kind: str, what: str, number: int, details: Any = None) -> None:
        self.failures.append(Failure(kind, what, number, details))

    def _read_logs(self, number: int, logs: Sequence[Iterable[RequestLog]]) -> None:
        while self._broken and self._broken[0][0] <= number - _REMEMBERED_ROUNDS:
            self._broken.popleft()
        for provider, log in enumerate(logs):
            for entry in log:
                self.requests += 1
                billed = is_billed(entry)
                self.billed += billed
                for fault in (entry.fault or "").split(","):
                    if fault:
                        self.struck[faults.kind_of(fault)] += 1
                    if faults.says_not_begun(fault):
                        self._lying.add((provider, entry.connection_id))
                    if faults.kind_of(fault) in _BREAKING:
                        self._broken.append((number, (provider, entry.connection_id)))
                if entry.tag is None:
                    if billed:
                        self._fail("doubled", "a request without a nonce was billed", number, entry.to_json())
                    continue
                known = self._known(entry.tag)
                if known is None:
                    if not entry.tag.count("-tasks-"):
                        self._fail("doubled", f"a request of {entry.tag} came when its call was long over", number)
                    continue
                known.log.append((provider, entry))

    def _known(self, nonce: str) -> _Nonce | None:
        return next((each[nonce] for each in reversed(self._nonces.values()) if nonce in each), None)

    def _applications(self, drawn: Round, told: Mapping[str, Any], nonces: Mapping[str, _Nonce]) -> None:
        """Each call ended once, and in a way that fits."""
        seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for action, end, detail, seconds in told["seen"]:
            seen[action].append((end, detail))
            self.longest = max(self.longest, (seconds, action))
        for op in drawn.ops:
            self.calls += 1
            self.ways[f"{op.api}, {'stream' if op.stream else 'whole'}"] += 1
            ends = seen.pop(op.action, [])
            if len(ends) != 1:
                self._fail("lost", f"{op.action} ended {len(ends)} times", drawn.number, _story(op, ends, nonces))
                continue
            end, detail = ends[0]
            self.ends[end] += 1
            known = nonces[op.nonce]
            known.answers += end == "answer"
            if end == "foreign":
                self._fail("crossed", f"{op.action} got {detail!r}", drawn.number, _story(op, ends, nonces))
            elif end not in self._allowed(op, known):
                self._fail("unfit", f"{op.action} ended as {end}: {detail}", drawn.number, _story(op, ends, nonces))

    def _allowed(self, op: Op, known: _Nonce) -> frozenset[str]:
        allowed = _LEFT[op.leave]
        if op.fault is not None:
            kind = faults.KINDS[faults.kind_of(op.fault)]
            ends = kind.ends
            # One that strikes a single attempt may strike one whose answer nobody gets.
            allowed = allowed | ends if op.leave != "whole" or ";times=" in op.fault else ends
        if self._broken_for(known):
            # Somebody else's fault took its connection, which openai's client tries again as often as it may.
            allowed |= {"connection"}
        if op.fault is not None and _was_late(known):
            # The fault was one way's, and the other was given up by `Routing`, which waits for a first token for a
            # second and more, as long as is usual: this machine may be busier than that.
            self.late += 1
            allowed |= {"timeout"}
        if op.api == "responses" and not op.stream and (op.fault or "").startswith("no_done"):
            # Streamed to a play, it lacks the one event by which its end is known: it is taken for broken off.
            allowed |= {"connection"}
        return allowed

    def _broken_for(self, known: _Nonce) -> bool:
        """Whether somebody's fault has broken a connection that a call was on, of late.

        A request that was on its way when that happened is not in any log: then any connection will do.
        """
        broken = {connection for _, connection in self._broken}
        sent = sum(len(record["attempts"]) for record in known.records)
        if len(known.log) < sent:
            return bool(broken)
        return any((provider, entry.connection_id) in broken for provider, entry in known.log)

    def _records(self, drawn: Round, told: Mapping[str, Any], nonces: Mapping[str, _Nonce]) -> None:
        """Each call has one record, and the record says what happened."""
        by_action: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for record in told["records"]:
            by_action[record["action"]].append(record)
        ends = {action: end for action, end, *_ in told["seen"]}
        for op in drawn.ops:
            records = by_action.pop(op.action, [])
            nonces[op.nonce].records += records
            if len(records) != 1:
                what = f"{op.action} has {len(records)} records"
                self._fail("record", what, drawn.number, [*records, _story(op, (), {})])
                continue
            record, end = records[0], ends.get(op.action, "")
            self.attempts.update(attempt["kind"] for attempt in record["attempts"])
            if end == "part" and record["outcome"] == "cancelled" and op.leave in ("drop", "cycle"):
                continue  # what ends a dropped stream is cancelled where its event loop ends first
            if end in _OUTCOMES and record["outcome"] not in _OUTCOMES[end] and not _is_odd(op):
                what = f"{op.action} ended as {end}, and its record says {record['outcome']}"
                self._fail("record", what, drawn.number, [record, _story(op, (), {})])
            self._kinds(drawn.number, op, record)

    def _kinds(self, number: int, op: Op, record: Mapping[str, Any]) -> None:
        attempts = record["attempts"]
        retries = [index for index, attempt in enumerate(attempts) if attempt["kind"] == "retry"]
        if len(retries) > op.max_retries:
            self._fail("record", f"{op.action} was tried again {len(retries)} times", number, record)
        for index in retries:
            # What breaks an answer amid its body is not on every attempt's record.
            if (
                op.fault is None
                and not any(
                    before["error"] is not None or before["status"] in _AGAIN or (before["status"] or 0) >= 500
                    for before in attempts[:index]
                )
                and not any(each["error"] is not None for each in attempts)
            ):
                self._fail("doubled", f"{op.action} was tried again for no reason", number, record)

    def _doubled(self, number: int, nonce: str, known: _Nonce) -> None:
        """What was sent is what the records list, and nothing more was billed."""
        if nonce in self._doubted:
            return
        attempts = sum(len(record["attempts"]) for record in known.records)
        resent = sum(each["resent"] for record in known.records for each in record["attempts"])
        billed = sum(is_billed(entry) for _, entry in known.log)
        story = {"nonce": nonce, "records": known.records, "log": [_short(entry) for _, entry in known.log]}
        # A probe of `RequestEncoding` has the headers of the call before which it asks, its fault too; never billed.
        probes = sum(entry.output_tokens == 0 for _, entry in known.log) if known.probes else 0
        if len(known.log) - probes > attempts + resent:
            self._doubted.add(nonce)
            self._fail("doubled", f"{nonce}: {len(known.log)} requests for {attempts} attempts", number, story)
        elif billed > attempts + (resent if self._was_lied_to(known) else 0):
            self._doubted.add(nonce)
            self._fail("doubled", f"{nonce}: billed {billed} times for {attempts} attempts", number, story)
        if known.answers and not billed and known.log:
            self._doubted.add(nonce)
            self._fail("crossed", f"{nonce}: answered, and generated for by nobody", number, story)

    def _was_lied_to(self, known: _Nonce) -> bool:
        """Whether a provider has said of a request that it had not begun it, and had: faults can have it say so."""
        return any((provider, entry.connection_id) in self._lying for provider, entry in known.log)


def _is_odd(op: Op) -> bool:
    """Whether the fault leaves out what a record goes by, only the application reads it, or somebody else closes it."""
    hidden = (op.fault or "").startswith(("no_done", "truncate", "misparse"))
    return hidden or op.api == "chat_bytes" or op.leave == "elsewhere"


def _was_late(known: _Nonce) -> bool:
    """Whether a call that went to both providers timed out at one of them."""
    attempts = [attempt for record in known.records for attempt in record["attempts"]]
    late = any(attempt["error"] in ("ConnectTimeout", "ReadTimeout") for attempt in attempts)
    return late and len({attempt["origin"] for attempt in attempts}) > 1


def is_billed(entry: RequestLog) -> bool:
    """Whether the provider did work for a request that it would charge for."""
    return entry.output_tokens > 0 or (entry.path.endswith("/embeddings") and entry.status == 200)


def _short(entry: RequestLog) -> dict[str, Any]:
    names = ("sequence_number", "http_version", "connection_id", "stream_id", "fault", "status", "output_tokens",
             "received_ns", "finished_ns", "reset_ns", "reset_code")  # fmt: skip
    return {name: getattr(entry, name) for name in names}


def _story(op: Op, ends: Iterable[Any], nonces: Mapping[str, _Nonce]) -> dict[str, Any]:
    """Return what a report tells of a call: its plan, its ends and its requests; no text of it."""
    known = nonces.get(op.nonce)
    log = [_short(entry) for _, entry in known.log] if known is not None else []
    records = known.records if known is not None else []
    return {
        "plan": {name: getattr(op, name) for name in Op.__slots__},
        "ends": list(ends),
        "log": log,
        "records": records,
    }


@dataclass(frozen=True, slots=True)
class Flat:
    """Whether memory stayed as it was."""

    before: float
    after: float

    @property
    def growth(self) -> float:
        """Growth as a share: 0.05 is 5 %."""
        return self.after / self.before - 1 if self.before else 0.0

    @property
    def holds(self) -> bool:
        """Whether it grew by no more than is promised."""
        return self.growth <= FLATNESS


def flatness(samples: Sequence[tuple[float, float]]) -> Flat | None:
    """Judge memory over time, `(moment, bytes)`: of what came after warm-up, the last quarter against the first.

    Warm-up is the first third of the run. Each quarter, of two samples at least, counts by its median. None with
    fewer samples.
    """
    if not samples:
        return None
    first, last = samples[0][0], samples[-1][0]
    warm = [sample for sample in samples if sample[0] >= first + (last - first) * WARM_UP]
    quarter = max(2, len(warm) // 4)
    if len(warm) < 2 * quarter:
        return None
    return Flat(median(value for _, value in warm[:quarter]), median(value for _, value in warm[-quarter:]))
