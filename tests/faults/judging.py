"""What a cell came to: ours beside the stock client's, promise by promise."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fastlane import CallRecord
from tests.faults.calling import ALLOWED, KEY, PROMPT, Came, Ours
from tests.faults.table import Cell, Difference, Fault
from tests.faults.wire import Counts

_OF_THE_CALL = ("first", "retry", "fallback")


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What a cell came to."""

    cell: Cell
    verdict: str = "failed"
    """same: as the stock client; better: as the table says, otherwise on purpose; failed."""
    problems: list[str] = field(default_factory=list)
    why: str = ""
    """Why it is otherwise on purpose."""
    stock: str = ""
    """What the stock client raised, or "answer"."""
    ours: str = ""
    stock_retries: int = 0
    retries: int = 0
    hedges: int = 0
    stock_begun: int = 0
    begun: int = 0
    requests: int = 0
    seconds: float = 0.0
    stock_seconds: float = 0.0
    bound_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        cell = self.cell
        data = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "cell"}
        return {"cell": [cell.fault, cell.form, cell.stream, cell.protocol, cell.plays], **data}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Verdict:
        """Back from plain data."""
        return cls(cell=Cell(*data["cell"]), **{name: value for name, value in data.items() if name != "cell"})


def said(came: Came) -> str:
    """An outcome in a word: the class of the error, with its status, or that there was an answer."""
    if came.error is None:
        return "answer"
    status = getattr(came.error, "status_code", None)
    return type(came.error).__name__ + ("" if status is None else f" {status}")


def judge(
    cell: Cell,
    fault: Fault,
    stock: tuple[Came, Counts],
    ours: tuple[Ours, Counts],
    *,
    good: Any,
    logged: str,
    beside: list[str],
) -> Verdict:
    """Hold every promise against what happened. `beside` has what was found outside of the call: leaks, noise."""
    theirs, their_counts = stock
    mine, counts = ours
    verdict = Verdict(cell=cell, stock=said(theirs), ours=said(mine.came), bound_s=fault.bound_s)
    verdict.stock_retries = max(theirs.sent - 1, 0)
    verdict.stock_begun, verdict.begun, verdict.requests = their_counts.begun, counts.begun, counts.requests
    verdict.seconds, verdict.stock_seconds = mine.came.seconds, theirs.seconds
    record = mine.calls[-1] if mine.calls else None
    if record is not None:
        verdict.retries = sum(each.kind in _OF_THE_CALL for each in record.attempts) - 1
        verdict.hedges = sum(each.kind == "hedge" for each in record.attempts)
    difference = next((each for each in fault.differs if each.holds(cell)), None)
    problems = [*_outcome(verdict, theirs, mine.came, difference, good), *_bounds(verdict), *beside, *mine.noise]
    problems += _records(mine, counts, fault)
    problems += _bills(verdict, counts, difference)
    problems += _secrets(mine, logged)
    verdict.problems = problems
    if not problems:
        verdict.verdict = "same" if difference is None else "better"
        verdict.why = "" if difference is None else difference.why
    return verdict


def _outcome(verdict: Verdict, theirs: Came, mine: Came, difference: Difference | None, good: Any) -> Iterator[str]:
    if difference is not None:
        expected = difference.raises or "answer"
        if verdict.ours != expected:
            yield f"raised {verdict.ours}, where the table expects {expected}"
        elif expected == "answer" and mine.result != (theirs.result if theirs.error is None else good):
            yield "the answer is not the good one"
        most = verdict.stock_retries if difference.retries is None else min(difference.retries, ALLOWED.retries)
        if verdict.retries > most or (difference.retries is not None and verdict.retries < most):
            yield f"retried {verdict.retries} times, where the table expects {most}"
        return
    if type(theirs.error) is not type(mine.error) or verdict.stock != verdict.ours:
        yield f"raised {verdict.ours}, the stock client {verdict.stock}"
    elif theirs.error is None and theirs.result != mine.result:
        yield f"another result than the stock client's: {_where(theirs.result, mine.result)}"
    if verdict.retries != verdict.stock_retries:
        yield f"retried {verdict.retries} times, the stock client {verdict.stock_retries} times"


def _where(theirs: Any, mine: Any) -> str:
    """Where two results part, without their text."""
    if isinstance(theirs, list) and isinstance(mine, list):
        if len(theirs) != len(mine):
            return f"{len(mine)} parts in place of {len(theirs)}"
        at = next((at for at, pair in enumerate(zip(theirs, mine, strict=True)) if pair[0] != pair[1]), 0)
        return f"part {at}, {_where(theirs[at], mine[at])}"
    if isinstance(theirs, dict) and isinstance(mine, dict):
        name = next((name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)), "")
        return f"{name}, {_where(theirs.get(name), mine.get(name))}"
    return f"{str(mine)[:60]!r} in place of {str(theirs)[:60]!r}"


def _bounds(verdict: Verdict) -> Iterator[str]:
    if verdict.seconds > verdict.bound_s:
        yield f"took {verdict.seconds:.1f} s, more than {verdict.bound_s:.0f} s"


def _records(mine: Ours, counts: Counts, fault: Fault) -> Iterator[str]:
    for name, records in (("client.calls", mine.calls), ("on_call_end", mine.hooked)):
        if len(records) != 1:
            yield f"{len(records)} records in {name}"
    if len(mine.closed) != len(mine.opened):
        yield f"{len(mine.opened)} sessions opened, {len(mine.closed)} closed"
    if len(mine.calls) != 1:
        return
    (record,) = mine.calls
    error = mine.came.error
    if error is not None:
        if (record.outcome, record.error) != ("failed", type(error).__name__):
            yield f"the record says {record.outcome}, {record.error}, where {type(error).__name__} was raised"
        status = getattr(error, "status_code", None)
        if status is not None and record.status_code != status:
            yield f"the record's status is {record.status_code}, the error's {status}"
    elif record.error is not None or record.outcome not in ("completed", "truncated"):
        yield f"the record says {record.outcome}, {record.error}, where nothing was raised"
    elif (record.outcome == "completed") != _is_whole(record, mine.came):
        yield f"the record says {record.outcome} of an answer with the finish reason {record.finish_reason}"
    made = len(record.attempts) + sum(each.resent for each in record.attempts)
    # One that was given up may not have come to all of its requests.
    least = made - sum(each.given_up is not None for each in record.attempts)
    each_takes = 1 + fault.hops if fault.peer in ("script", "emulator") else 0
    if not least * each_takes <= counts.requests <= made * each_takes:
        yield f"the record has {made} attempts, the server {counts.requests} requests"
    # The one that gave the answer, or that failed last, stands last.
    if sorted(each.number for each in record.attempts) != list(range(1, len(record.attempts) + 1)):
        yield "the attempts are not numbered one by one"
    if any(each.wire.ended_ns is None for each in record.attempts):
        yield "an attempt has no end"


def _is_whole(record: CallRecord, came: Came) -> bool:
    return record.finish_reason is not None or not record.stream


def _bills(verdict: Verdict, counts: Counts, difference: Difference | None) -> Iterator[str]:
    on_purpose = min(difference.begun, ALLOWED.retries + 1) if difference is not None else 0
    allowed = max(verdict.stock_begun, on_purpose)
    if verdict.begun - verdict.hedges > allowed:
        yield f"{verdict.begun} generations ({verdict.hedges} hedged), where {allowed} are allowed"
    if verdict.retries > ALLOWED.retries:
        yield f"{verdict.retries} retries, where {ALLOWED.retries} are allowed"
    if counts.keys_elsewhere:
        yield "the key went to another origin"


def _secrets(mine: Ours, logged: str) -> Iterator[str]:
    error = mine.came.error
    texts = {"the log": logged}
    if error is not None:
        chain = [error, error.__cause__, error.__context__]
        texts["the error"] = " ".join(f"{each} {each!r}" for each in chain if each is not None)
        texts["the traceback"] = "".join(traceback.format_exception(error))
    for record in (*mine.calls, *mine.hooked):
        texts["the record"] = texts.get("the record", "") + repr(record) + json.dumps(record.to_dict(), default=repr)
    for name, text in texts.items():
        if KEY in text:
            yield f"the key stands in {name}"
        if PROMPT in text:
            yield f"the prompt stands in {name}"
    if "Rhine" in texts.get("the record", ""):
        yield "the answer stands in the record"
