"""Lost, doubled, crossed: what the application saw, what the records say and what the providers did, held together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, NamedTuple

from fastlane.emulator import RequestLog
from tests.soak.plan import FAULTS, PROBING, Op, Round, kind_of

# How a call may end for being left so, whatever else.
_LEFT: Mapping[str, frozenset[str]] = {
    "whole": frozenset({"answer"}),
    **dict.fromkeys(("close", "with", "drop", "cycle"), frozenset({"part"})),
    "elsewhere": frozenset({"part", "connection", "closed"}),
    **{leave: frozenset({"answer", "part", leave}) for leave in ("timeout", "gave_up")},
    "cancel": frozenset({"answer", "part", "cancelled"}),
}
_LEFT_EARLY = frozenset({"cancelled", "closed", "abandoned"})
# The answer had come, and then it could not be read.
_FAILED_LATER = frozenset({"failed", "completed", "stopped", "truncated"})
# Which outcomes a record may have where the application saw this.
_OUTCOMES: Mapping[str, frozenset[str]] = {
    "answer": frozenset({"completed", "stopped"}),
    "part": frozenset({"closed", "abandoned", "completed", "stopped", "truncated"}),
    "cut": frozenset({"truncated"}),
    "misread": frozenset({"completed", "stopped", "truncated"}),
    **dict.fromkeys(("cancelled", "gave_up"), _LEFT_EARLY),
    **dict.fromkeys(("status", "connection", "timeout"), frozenset({"failed"})),
    **dict.fromkeys(("malformed", "invalid"), _FAILED_LATER),
}
_AGAIN = frozenset({408, 409, 429})
_BREAKING = frozenset(name for name, kind in FAULTS.items() if kind.breaks)
_REMEMBERED_ROUNDS = 4
FLATNESS = 0.05
WARM_UP = 1 / 3
# What `Routing` logs of a model whose connection failed, or that refused a call: where faults do that it is true.
_UNREACHABLE = "of the catalog could not be connected to"
_REFUSED = re.compile(r"of the catalog answered (\d+) at")


class Failure(NamedTuple):
    """Something that must not be."""

    kind: str
    what: str
    round: int
    details: Any = None


@dataclass
class _Nonce:
    """What is known of one nonce."""

    plan: list[Op] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    answers: int = 0
    probes: bool = False
    """Whether its client may ask before it what the provider takes."""
    log: list[tuple[int, RequestLog]] = field(default_factory=list)
    """Each with the number of its provider."""

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        return [attempt for record in self.records for attempt in record["attempts"]]

    def on(self, connections: Iterable[tuple[int, str]]) -> bool:
        """Whether a request of it was on one of these connections."""
        return any((provider, entry.connection_id) in connections for provider, entry in self.log)


class Judge:
    """Takes one round after the other."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.counts: Counter[str] = Counter()
        """Of calls, requests, and those billed, and of what is no failure: see the page about the soak."""
        self.ends: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.longest = (0.0, "")
        self._round = 0
        self._nonces: dict[int, dict[str, _Nonce]] = {}
        self._broken: deque[tuple[int, tuple[int, str]]] = deque()
        self._doubted: set[str] = set()
        self._lying: set[tuple[int, str]] = set()

    def round_is_over(self, drawn: Round, report: Mapping[str, Any], logs: Sequence[Iterable[RequestLog]]) -> None:
        """Judge one round: by its plan, by what the process reported, and by the provider's logs since the last one."""
        self._round = drawn.number
        nonces = self._nonces[drawn.number] = defaultdict(_Nonce)
        self._nonces.pop(drawn.number - _REMEMBERED_ROUNDS, None)
        for scene in drawn.scenes:
            for op in (op for actor in scene.actors for op in actor):
                nonces[op.nonce].plan.append(op)
                nonces[op.nonce].probes = scene.plays == PROBING
        self._read_logs(logs)
        self._records(drawn, report, nonces)
        self._applications(drawn, report, nonces)
        for each in self._nonces.values():
            for nonce, known in each.items():
                self._doubled(nonce, known)
        struck = [op.fault for op in drawn.ops if op.fault]
        for kind in ("left", "wrong", "reports"):
            for what in report[kind]:
                refused = _REFUSED.search(what)
                if kind == "reports" and struck and _UNREACHABLE in what:
                    self.counts["models said to be unreachable"] += 1
                elif kind == "reports" and refused and any(f"status={refused[1]}" in fault for fault in struck):
                    self.counts["models said to refuse"] += 1
                else:
                    self._fail(kind, what)

    def _fail(self, kind: str, what: str, details: Any = None) -> None:
        self.failures.append(Failure(kind, what, self._round, details))

    def _read_logs(self, logs: Sequence[Iterable[RequestLog]]) -> None:
        while self._broken and self._broken[0][0] <= self._round - _REMEMBERED_ROUNDS:
            self._broken.popleft()
        for provider, log in enumerate(logs):
            for entry in log:
                self.counts["requests"] += 1
                self.counts["billed"] += is_billed(entry)
                connection = provider, entry.connection_id
                for fault in filter(None, (entry.fault or "").split(",")):
                    kind = kind_of(fault)
                    self.struck[kind] += 1
                    # A GOAWAY names the stream of its own request as the last, whatever has begun behind it, and
                    # REFUSED_STREAM says of one that it has not begun: the client may then send it again.
                    if kind == "goaway" or "code=7" in fault:
                        self._lying.add(connection)
                    if kind in _BREAKING:
                        self._broken.append((self._round, connection))
                known = next((each[entry.tag] for each in self._nonces.values() if entry.tag in each), None)
                if entry.tag is None and is_billed(entry):
                    self._fail("doubled", "a request without a nonce was billed", entry.to_json())
                elif known is not None:
                    known.log.append((provider, entry))
                elif entry.tag is not None and "-tasks-" not in entry.tag:
                    self._fail("doubled", f"a request of {entry.tag} came when its call was long over")

    def _applications(self, drawn: Round, report: Mapping[str, Any], nonces: Mapping[str, _Nonce]) -> None:
        """Each call ended once, with a fitting outcome."""
        seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for action, end, detail, seconds in report["seen"]:
            seen[action].append((end, detail))
            self.longest = max(self.longest, (seconds, action))
        for op in drawn.ops:
            self.counts["calls"] += 1
            ends, known = seen[op.action], nonces[op.nonce]
            if len(ends) != 1:
                self._fail("lost", f"{op.action} ended {len(ends)} times", _story(op, ends, known))
                continue
            ((end, detail),) = ends
            self.ends[end] += 1
            known.answers += end == "answer"
            if end == "foreign":
                self._fail("crossed", f"{op.action} got {detail!r}", _story(op, ends, known))
            elif end not in self._allowed(op, known):
                self._fail("unfit", f"{op.action} ended as {end}: {detail}", _story(op, ends, known))

    def _allowed(self, op: Op, known: _Nonce) -> frozenset[str]:
        allowed = _LEFT[op.leave]
        if op.fault is not None:
            ends = FAULTS[kind_of(op.fault)].ends
            # One that strikes a single attempt may strike one whose answer is discarded.
            allowed = allowed | ends if op.leave != "whole" or ";times=" in op.fault else ends
            if _was_late(known):
                # The fault was one upstream's, and the other was given up by `Routing`, which waits for a first token
                # for a second and more, as long as is usual: this machine may be busier than that.
                self.counts["struck, and late elsewhere"] += 1
                allowed |= {"timeout"}
        broken = {connection for _, connection in self._broken}
        # Another call's fault took its connection, which openai's client tries again as often as it may. A request
        # that was in flight when that happened is not in any log: then any connection will do.
        if broken and (len(known.log) < len(known.attempts) or known.on(broken)):
            allowed |= {"connection"}
        if op.api == "responses" and not op.stream and (op.fault or "").startswith("no_done"):
            # Streamed to a play, it lacks the one event by which its end is known: it is taken for broken off.
            allowed |= {"connection"}
        return allowed

    def _records(self, drawn: Round, report: Mapping[str, Any], nonces: Mapping[str, _Nonce]) -> None:
        """Each call has one record, and the record says what happened."""
        by_action: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for record in report["records"]:
            by_action[record["action"]].append(record)
        ends = {action: end for action, end, *_ in report["seen"]}
        for op in drawn.ops:
            records, known = by_action[op.action], nonces[op.nonce]
            known.records += records
            if len(records) != 1:
                self._fail("record", f"{op.action} has {len(records)} records", _story(op, (), known))
                continue
            record, end = records[0], ends.get(op.action, "")
            self.attempts.update(attempt["kind"] for attempt in record["attempts"])
            # What ends a dropped stream is cancelled where its event loop ends first.
            dropped = end == "part" and record["outcome"] == "cancelled" and op.leave in ("drop", "cycle")
            if not dropped and end in _OUTCOMES and record["outcome"] not in _OUTCOMES[end] and not _is_odd(op):
                what = f"{op.action} ended as {end}, and its record says {record['outcome']}"
                self._fail("record", what, _story(op, (), known))
            self._retries(op, record)

    def _retries(self, op: Op, record: Mapping[str, Any]) -> None:
        """Each retry has a reason, and there are no more than the call may have."""
        attempts = record["attempts"]
        retries = [index for index, attempt in enumerate(attempts) if attempt["kind"] == "retry"]
        if len(retries) > op.max_retries:
            self._fail("record", f"{op.action} was tried again {len(retries)} times", record)
        # What breaks an answer amid its body is not on every attempt's record.
        if op.fault is not None or any(each["error"] is not None for each in attempts):
            return
        for index in retries:
            statuses = [before["status_code"] or 0 for before in attempts[:index]]
            if not any(status in _AGAIN or status >= 500 for status in statuses):
                self._fail("doubled", f"{op.action} was tried again for no reason", record)

    def _doubled(self, nonce: str, known: _Nonce) -> None:
        """What was sent is what the records list, and nothing more was billed."""
        if nonce in self._doubted:
            return
        sent = len(known.attempts)
        resent = sum(each["resent"] for each in known.attempts)
        billed = sum(is_billed(entry) for _, entry in known.log)
        # A probe of `RequestEncoding` has the headers of the call before which it asks, its fault too; never billed.
        probes = sum(entry.output_tokens == 0 for _, entry in known.log) if known.probes else 0
        found = None
        if known.answers and not billed and known.log:
            found = "crossed", "answered, but not generated by any provider"
        if billed > sent + (resent if known.on(self._lying) else 0):
            found = "doubled", f"billed {billed} times for {sent} attempts"
        if len(known.log) - probes > sent + resent:
            found = "doubled", f"{len(known.log)} requests for {sent} attempts"
        if found is not None:
            self._doubted.add(nonce)
            self._fail(found[0], f"{nonce}: {found[1]}", _story(known.plan[0], (), known))


def _is_odd(op: Op) -> bool:
    """Whether the fault hides what a record goes by, only the application reads it, or another thread closes it."""
    hidden = (op.fault or "").startswith(("no_done", "truncate", "misparse"))
    return hidden or op.api == "chat_bytes" or op.leave == "elsewhere"


def _was_late(known: _Nonce) -> bool:
    """Whether a call that went to both providers timed out at one of them."""
    late = any(attempt["error"] in ("ConnectTimeout", "ReadTimeout") for attempt in known.attempts)
    return late and len({attempt["origin"] for attempt in known.attempts}) > 1


def is_billed(entry: RequestLog) -> bool:
    """Whether the provider did work for a request that it would charge for."""
    return entry.output_tokens > 0 or (entry.path.endswith("/embeddings") and entry.status == 200)


def _story(op: Op, ends: Iterable[Any], known: _Nonce) -> dict[str, Any]:
    """Return what a report tells of a call: its plan, its ends, its records and its requests; no text of it."""
    names = ("sequence_number", "http_version", "connection_id", "stream_id", "fault", "status", "output_tokens",
             "received_ns", "finished_ns", "reset_ns", "reset_code")  # fmt: skip
    log = [{name: getattr(entry, name) for name in names} for _, entry in known.log]
    return {"plan": asdict(op), "ends": list(ends), "log": log, "records": known.records}


def growth(samples: Sequence[tuple[float, float]]) -> float | None:
    """Return by which share of it memory grew, given `(moment, bytes)`; it may by `FLATNESS`.

    Warm-up is the first third of the run. Of what came after, the last quarter is held against the first: each
    quarter, of two samples at least, counts by its median. None with fewer samples.
    """
    if not samples:
        return None
    first, last = samples[0][0], samples[-1][0]
    warm = [value for moment, value in samples if moment >= first + (last - first) * WARM_UP]
    quarter = max(2, len(warm) // 4)
    if len(warm) < 2 * quarter:
        return None
    return median(warm[-quarter:]) / median(warm[:quarter]) - 1
