"""What a run leaves behind: raw records, from which every figure and every report is made, and their folder."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TextIO

from pydantic import TypeAdapter

from ..errors import ConfigurationError
from ..records.record import CallRecord
from ..records.timeline import seconds

if TYPE_CHECKING:
    from ..emulator import RequestLog
    from ..records.timeline import WireStamps


Part = Literal["cold", "warm-up", "measured"]
"""What a request is good for: an arm process's very first one, one that was sent to warm up, or one that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKey:
    """Where a request belongs: what is known of it before it is sent."""

    arm: str
    tag: str
    """Unique within a run; the embedded provider's log names the request by it."""
    cell: str = ""
    shard: int = 0
    lane: int = 0
    block: int
    """Position of the block in its lane, from 0; -1 for an arm process's first request."""
    position: int = 0
    conversation: str
    turn: int
    part: Part = "measured"
    intended_ns: int | None = None
    """When an open load's schedule wanted it sent, whatever the client was busy with; None under a closed load."""
    asked_output_tokens: int | None = None
    least_output_tokens: int | None = None
    """The fewest that the workload meant to get; None if it means none."""
    meant_input_tokens: int | None = None
    """The input tokens that the workload meant to send, by its own count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(SampleKey):
    """What one arm's client did for one request.

    Every `_ns` is of the monotonic clock of the shard's machine, which the provider's log shares on one machine.
    """

    issued_ns: int
    """Just before `create()`."""
    response_ns: int | None = None
    """`create()` returned: the caller has the stream."""
    first_event_ns: int | None = None
    """The caller got the first chunk of any kind, one with only a role included."""
    first_content_ns: int | None = None
    """The caller got the first chunk with output that is no reasoning."""
    token_ns: Sequence[int] = ()
    """When the caller got each chunk with output. A chunk with only a role or a usage report is none."""
    ended_ns: int
    delivery_gap_ms: float | None = None
    """Longest time between a chunk's arrival and its delivery, by the client's own record; None if it keeps none."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_message: str | None = None
    price: float | None = None
    call: Mapping[str, Any] | None = field(default=None, repr=False)
    record: CallRecord | None = field(default=None, repr=False, compare=False)
    """The same as it is; not written to files."""

    @property
    def key(self) -> tuple[str, int, int, int]:
        """The block of which this request was one arm's part."""
        return (self.cell, self.shard, self.lane, self.block)

    @property
    def cold(self) -> bool:
        """Whether this was the very first request of its arm's process."""
        return self.part == "cold"

    @property
    def started_ns(self) -> int:
        """What durations count from: the scheduled moment under an open load (coordinated omission), or the issue."""
        return self.issued_ns if self.intended_ns is None else self.intended_ns

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from start to the first output, reasoning included; None if none came."""
        return seconds(self.started_ns, self.token_ns[0] if self.token_ns else None)

    @property
    def time_to_first_content_token_s(self) -> float | None:
        """Seconds from start to the first output that is no reasoning; None if none came."""
        return seconds(self.started_ns, self.first_content_ns)

    @property
    def api_end_to_end_s(self) -> float | None:
        """Seconds from start to the last output; None if none came."""
        return seconds(self.started_ns, self.token_ns[-1] if self.token_ns else None)

    @property
    def generation_time_s(self) -> float | None:
        """Seconds from the first output to the last; None if none came."""
        return seconds(self.token_ns[0], self.token_ns[-1]) if self.token_ns else None

    @property
    def time_per_output_token_s(self) -> float | None:
        """Generation time over output tokens - 1, tokens by the provider's usage; None without usage or below 2."""
        return _each(self.generation_time_s, self.output_tokens)

    @property
    def inter_token_latency_s(self) -> float | None:
        """Mean seconds between chunks with output, which are no tokens; None below two chunks."""
        return _each(self.generation_time_s, len(self.token_ns))

    @property
    def decode_speed(self) -> float | None:
        """Tokens per second after the first one: 1 / time per output token."""
        return 1 / self.time_per_output_token_s if self.time_per_output_token_s else None

    @property
    def output_throughput(self) -> float | None:
        """Output tokens over API end-to-end, per second; None without usage."""
        whole = self.api_end_to_end_s
        return self.output_tokens / whole if whole and self.output_tokens else None

    @property
    def dispatch_delay_s(self) -> float | None:
        """Seconds by which an open load's request was issued late; None under a closed load."""
        return None if self.intended_ns is None else (self.issued_ns - self.intended_ns) / 1e9

    @property
    def request_bytes(self) -> int | None:
        """Bytes of the request's body as sent, by the client's own record; None if it keeps none."""
        attempts = self.call["attempts"] if self.call is not None else ()
        return attempts[-1].get("request_body_bytes") if attempts else None


def _each(span_s: float | None, count: int | None) -> float | None:
    """Return the time from one of `count` outputs to the next; None below two."""
    return None if span_s is None or count is None or count < 2 else span_s / (count - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """One process's own state during one cell."""

    cell: str
    shard: int = 0
    arm: str | None = None
    duration_s: float
    cpu_s: float
    loop_lag_p50_ms: float | None = None
    """By how much a thread that sleeps some milliseconds is woken late, or an event loop answers it late."""
    loop_lag_p99_ms: float | None = None

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second: 1.0 is one core."""
        return self.cpu_s / self.duration_s if self.duration_s else 0.0


Role = Literal["reference", "again", "arm"]
"""What the others are compared with; its copy, whose interval is the instrument's own band; or one of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmInfo:
    """One arm of a run, as its records name it."""

    name: str
    description: str
    role: Role = "arm"
    reference: str | None = None
    client: str = ""
    plays: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting of workload and load; every cell has its own blocks, pairs and checks."""

    name: str
    """Unique in the run, such as "rag, 10 users"."""
    workload: str
    """Which of the run's workloads: a context length of a preset is one."""
    load: Literal["closed", "open"] = "closed"
    users: int | None = None
    rate: float | None = None
    order: int = 0
    """Position in which the cell was run, drawn at random."""
    caching_forbidden: bool = False
    """Whether the workload's prompts are unique, so that nothing may be read from a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything about a run but its raw records."""

    name: str
    provider: str
    model: str
    embedded: bool
    """Whether the provider was the embedded one, whose log is beside the records."""
    one_way_s: float = 0.0
    arms: tuple[ArmInfo, ...]
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...]
    workload: str
    workload_source: str = ""
    workload_notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    started_at: str = ""

    @property
    def references(self) -> tuple[ArmInfo, ...]:
        """The arms that others are compared with, one at least."""
        return tuple(arm for arm in self.arms if arm.role == "reference") or self.arms[:1]

    @property
    def copies(self) -> tuple[ArmInfo, ...]:
        """The references' copies, which take part for the instrument's own noise."""
        return tuple(arm for arm in self.arms if arm.role == "again")

    def reference_of(self, arm: str) -> ArmInfo:
        """Return the arm that an arm is compared with, by its name; a reference is its own."""
        found = next(each for each in self.arms if each.name == arm)
        if found in self.references:
            return found
        return next((each for each in self.references if each.name == found.reference), self.references[0])

    def again_of(self, arm: str) -> ArmInfo | None:
        """Return the copy of the reference that an arm is compared with; None for a run without one."""
        reference = self.reference_of(arm)
        return next((each for each in self.copies if self.reference_of(each.name) is reference), None)


@dataclass(frozen=True, slots=True)
class RequestMetric:
    """One figure of a request that can be compared between arms; docs/measuring.md defines each."""

    name: str
    title: str
    unit: str
    """Of the values that `value` returns: "ms", "tokens/s", "bytes" or "US$"."""
    meaning: str
    words: tuple[str, str] = ("faster", "slower")
    """What is said where an arm's values are better, and where they are worse."""

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value is better."""
        return self.unit != "tokens/s"

    def value(self, sample: Sample) -> float | None:
        """Return the figure of a request; None if it gave none, as a failed one does."""
        value: float | None = getattr(sample, f"{self.name}_s" if self.unit == "ms" else self.name)
        return value * 1e3 if self.unit == "ms" and value is not None else value


_TTFT = "TTFT: from just before the call until its first output, reasoning included; connecting is inside."
_TPOT = (
    "TPOT: (E2E - TTFT) / (output tokens - 1), with these parentheses; tokens by the provider's usage. Some load "
    "generators put TTFT inside what they call TPOT."
)
_ITL = "ITL: the mean time between a request's chunks with output; a chunk may carry several tokens."
_E2E = "E2E: from just before the call until the last output."
_BYTES = "Bytes of the body as sent, without headers, framing and TLS."
_CONTENT = "The same until the first output that is no reasoning."
_GENERATION = "E2E - TTFT: from the first output to the last one."
_PRICE = "US dollars of one request by its usage and the catalog's prices."
METRICS: Final = {
    metric.name: metric
    for metric in (
        RequestMetric("time_to_first_token", "Time to first token", "ms", _TTFT),
        RequestMetric("time_to_first_content_token", "Time to first content token", "ms", _CONTENT),
        RequestMetric("time_per_output_token", "Time per output token", "ms", _TPOT),
        RequestMetric("inter_token_latency", "Inter-token latency", "ms", _ITL),
        RequestMetric("generation_time", "Token generation time", "ms", _GENERATION),
        RequestMetric("api_end_to_end", "API end-to-end", "ms", _E2E),
        RequestMetric("decode_speed", "Decode speed", "tokens/s", "1 / TPOT, as one user sees it."),
        RequestMetric("output_throughput", "Output throughput", "tokens/s", "Output tokens of a request over its E2E."),
        RequestMetric("request_bytes", "Request body", "bytes", _BYTES, words=("smaller", "larger")),
        RequestMetric("price", "Price", "US$", _PRICE, words=("cheaper", "dearer")),
    )
}
DEFAULT_METRICS: Final = ("time_to_first_token", "time_per_output_token", "api_end_to_end")


def metric_named(name: str) -> RequestMetric:
    """Return a metric by its name. Raises ConfigurationError, which lists the known ones."""
    if name not in METRICS:
        raise ConfigurationError(f"unknown metric {name!r}: the known metrics are {', '.join(METRICS)}")
    return METRICS[name]


FAILED_ALIKE: Final = "requests failed alike"
"""How a run has ended whose requests failed with the same error."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One run. Every report is made from this alone, whether it has just been recorded or read from a folder."""

    header: Header
    samples: tuple[Sample, ...]
    vitals: tuple[Vitals, ...] = ()
    log: tuple[RequestLog, ...] | None = None
    unlogged: tuple[str, ...] = ()
    """Tags of requests whose account was lost with a session that was killed before it could be kept."""
    duration_s: float = 0.0
    ended: str = "finished"
    """Why it ended: "finished", "interrupted", FAILED_ALIKE, or the budget that was spent."""

    def connections_opened(self, samples: Iterable[Sample]) -> int | None:
        """Return how many of the requests opened a connection; None if it is not known of each.

        By the provider's log, or else by the clients' own records; of requests that waited for one opening, the first.
        """
        if self.log is not None:
            first = {entry.tag for entry in self.log if entry.connection_request_number == 1}
            return sum(sample.tag in first for sample in samples)
        count = 0
        openings: set[tuple[str | None, int | None]] = set()
        for sample in samples:
            attempts = [] if sample.call is None else sample.call["attempts"]
            if not attempts or any(attempt.get("connection_reused") is None for attempt in attempts):
                return None
            opened = [attempt for attempt in attempts if not attempt["connection_reused"]]
            # A port may be used again later, so that the connection's name is not enough.
            own = {(attempt["connection_id"], attempt["wire"]["connect_started_ns"]) for attempt in opened}
            count += bool(own - openings)
            openings |= own
        return count

    def measured(self, cell: str | None = None, arm: str | None = None) -> tuple[Sample, ...]:
        """Return the samples that count, of one cell or arm or of all."""
        if cell is not None and arm is not None:
            return tuple(self._measured.get((cell, arm), ()))
        counted = (sample for sample in self.samples if sample.part == "measured")
        return tuple(each for each in counted if cell in (None, each.cell) and arm in (None, each.arm))

    @cached_property
    def _measured(self) -> Mapping[tuple[str, str], Sequence[Sample]]:
        found: dict[tuple[str, str], list[Sample]] = defaultdict(list)
        for sample in self.measured():
            found[sample.cell, sample.arm].append(sample)
        return found


Key = tuple[str, int, int, int]
"""A block, as `Sample.key` names it."""
BROKE_OFF: Final = "answer broke off"
"""What an answer counts as that ended without an error and without its finish reason."""


def errors_of(samples: Sequence[Sample]) -> dict[Key, str]:
    """Return which requests failed and by what: those that broke off have failed as well.

    Interrupted servers close a stream as if it were whole. Without any finish reason of the arm, none counts.
    """
    says_why = any(sample.finish_reason is not None for sample in samples)
    broken = BROKE_OFF if says_why else None
    found = {sample.key: sample.error or (broken if sample.finish_reason is None else None) for sample in samples}
    return {key: error for key, error in found.items() if error is not None}


SCHEMA: Final = 3
"""Of all files of a folder: raised when a field changes its meaning or goes away."""
RUN: Final = "run.json"
RECORDS: Final = "records.jsonl"
VITALS: Final = "vitals.jsonl"
SERVER: Final = "server.jsonl"
_SAMPLE_FIELDS: Final = tuple(field.name for field in fields(Sample) if field.name != "record")


class RunWriter:
    """Writes a run's folder while the run goes on. Raises ConfigurationError for a folder that cannot be written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, TextIO] = {}
        see_writable(folder, "a run")
        if any((folder / name).exists() for name in (RUN, RECORDS)):
            raise ConfigurationError(f"{folder} holds a run already: name a folder that holds none")

    def begin(self, header: Header) -> None:
        """Write what the run is, and open the files of its records."""
        self.end(header, None)
        for name in (RECORDS, VITALS, SERVER):
            self._files[name] = (self._folder / name).open("a", encoding="utf-8")

    def sample(self, sample: Sample) -> None:
        """Append one request's record, without what follows from other fields."""
        self._append(RECORDS, {name: getattr(sample, name) for name in _SAMPLE_FIELDS})

    def vitals(self, vitals: Vitals) -> None:
        """Append one process's vitals."""
        self._append(VITALS, asdict(vitals))

    def log(self, entries: Iterable[RequestLog]) -> None:
        """Append what the provider wrote down."""
        for entry in entries:
            self._append(SERVER, entry.to_json())

    def end(self, header: Header, ended: str | None) -> None:
        """Write what the run is, and why it ended."""
        data = {"schema": SCHEMA, "header": asdict(header), "ended": ended}
        # In one step: a run that is killed meanwhile has the old file or the new one.
        beside = self._folder / (RUN + ".new")
        beside.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        beside.replace(self._folder / RUN)

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        # Flushed to the system, not to the disk: what is written survives the process, which is what is killed.
        self._files[name].write(json.dumps(row, ensure_ascii=False, default=list) + "\n")
        self._files[name].flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()


def see_writable(folder: Path, what: str) -> None:
    """Make a folder that `what` needs. Raises ConfigurationError if it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"{what} needs a folder that can be written to, not {folder}: {why}") from error


def read_run(folder: Path) -> RecordedRun:
    """Read a run, also one that was cut off. Raises ConfigurationError, which names the file and line, for no run."""
    from ..emulator import RequestLog

    path = folder / RUN
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schema, ended = data["schema"], data.get("ended")
        header = TypeAdapter(Header).validate_python(data["header"]) if schema == SCHEMA else None
    except OSError as error:
        raise ConfigurationError(f"{folder} holds no run: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no run's: {type(error).__name__}: {error}") from error
    if header is None:
        raise ConfigurationError(f"{path} has schema {schema}, and this version of fastlane reads schema {SCHEMA}")
    samples = tuple(Sample(**row | {"token_ns": array("q", row["token_ns"])}) for row in _rows(folder / RECORDS))
    log = tuple(map(RequestLog.from_json, _rows(folder / SERVER))) if header.embedded else None
    logged = {entry.tag for entry in log or ()}
    was_killed = log is not None and ended is None
    return RecordedRun(
        header=header,
        samples=samples,
        vitals=tuple(Vitals(**row) for row in _rows(folder / VITALS)),
        log=log,
        unlogged=tuple(sample.tag for sample in samples if was_killed and sample.tag not in logged),
        duration_s=duration_s(samples),
        ended=ended or "interrupted",
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for where, row in rows_of(path, may_be_cut_off=True) if path.exists() else ():
        if not isinstance(row, dict):
            raise ConfigurationError(f"{where}: expected a record, got {described(row)}")
        yield row


def duration_s(samples: Iterable[Sample]) -> float:
    """Return the seconds of all cells, from the first measured request to the last one's end in each shard."""
    shards: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.part == "measured":
            shards[sample.cell, sample.shard].append(sample)
    cells: dict[str, float] = defaultdict(float)
    for (cell, _), own in shards.items():
        span_ns = max(sample.ended_ns for sample in own) - min(sample.issued_ns for sample in own)
        cells[cell] = max(cells[cell], span_ns / 1e9)
    return sum(cells.values())


def with_own_records(sample: Sample, round_trip_ns: int) -> Sample:
    """Return a sample with its client's record also as plain data, as files hold it.

    `round_trip_ns` is the emulated wire's. Loopback answers a SYN at once, so the TCP handshake's round trip is in the
    client's stamps of TLS: it is moved to those of the connect.
    """
    if sample.record is None:
        return sample

    def connected(wire: WireStamps) -> WireStamps:
        if wire.connect_started_ns is None or wire.connect_ended_ns is None or wire.tls_ended_ns is None:
            return wire
        ended_ns = min(max(wire.connect_ended_ns, wire.connect_started_ns + round_trip_ns), wire.tls_ended_ns)
        return replace(wire, connect_ended_ns=ended_ns, tls_started_ns=ended_ns)

    attempts = tuple(replace(attempt, wire=connected(attempt.wire)) for attempt in sample.record.attempts)
    record = replace(sample.record, attempts=attempts)
    return replace(sample, record=record, call=record.to_dict())


# Files of JSON lines


def rows_of(path: Path, *, may_be_cut_off: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the values of JSON lines, or the items of one JSON list, each with where it stands in the file.

    `may_be_cut_off`: leave out a last line that is no JSON, as a killed process leaves it. Raises ConfigurationError.
    """
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    # Not str.splitlines: JSON strings may hold U+2028 and its like unescaped, which end no line of JSONL.
    lines = [(number, line.rstrip(b"\r")) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    first = lines[0][1].strip() if lines else b""
    if first == b"[" or (first.startswith(b"[") and first[1:].lstrip().startswith(b"{")):
        items = enumerate(_parsed(data, path, 1), start=1)
        yield from ((f"{path}, item {item}", value) for item, value in items)
        return
    for number, line in lines:
        try:
            value = _parsed(line, path, number)
        except ConfigurationError:
            if may_be_cut_off and number == lines[-1][0]:
                return
            raise
        yield f"{path}, line {number}", value


def _parsed(data: bytes, path: Path, first: int) -> Any:
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason} in line {first}") from error
    except json.JSONDecodeError as error:
        # Its own words count lines from the text's beginning, which is in the middle of a JSONL file.
        where = f"{path}, line {first + error.lineno - 1}"
        raise ConfigurationError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {first}: not valid JSON: {error}") from error


def described(value: object) -> str:
    """Describe a value in a few words."""
    if isinstance(value, dict):
        return "an object with the keys " + (", ".join(map(repr, list(value)[:6])) or "(none)")
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r:.40}")
