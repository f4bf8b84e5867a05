"""Every promise of the fault matrix, held against what happened in one cell."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from typing import Any

from tests.faults.calls import KEY, PROMPT, OurCall, Outcome
from tests.faults.table import Cell, Difference, Fault
from tests.faults.wire import Counts


def problems_of(
    cell: Cell, fault: Fault, stock: tuple[Outcome, Counts], ours: tuple[OurCall, Counts], *, good: Any, retries: int
) -> list[str]:
    """Return what broke a promise. `good` is the answer without a fault, `retries` the most that are allowed."""
    theirs, their_counts = stock
    mine, counts = ours
    difference = next((each for each in fault.differs if each.holds(cell)), None)
    found = [*_outcome(theirs, mine, difference, good, retries), *mine.complaints, *_records(mine, counts, fault)]
    found += _pauses(mine, fault)
    if mine.seconds > fault.bound_s:
        found.append(f"took {mine.seconds:.1f} s, more than {fault.bound_s:.0f} s")
    begun = max(their_counts.begun, min(difference.begun, retries + 1) if difference is not None else 0)
    if counts.begun - mine.hedges > begun:
        found.append(f"{counts.begun} generations ({mine.hedges} hedged), where {begun} are allowed")
    if mine.retries > retries:
        found.append(f"{mine.retries} retries, where {retries} are allowed")
    if counts.keys_elsewhere:
        found.append("the key went to another origin")
    return [*found, *_secrets(mine)]


def _outcome(theirs: Outcome, mine: OurCall, difference: Difference | None, good: Any, retries: int) -> Iterator[str]:
    if difference is None:
        expected, result, most = str(theirs), theirs.result, theirs.retries
    else:
        expected, result = difference.raises or "answer", theirs.result if theirs.error is None else good
        most = theirs.retries if difference.retries is None else min(difference.retries, retries)
    if str(mine) != expected or (difference is None and type(mine.error) is not type(theirs.error)):
        yield f"raised {mine}, where {expected} is expected"
    elif mine.error is None and mine.result != result:
        yield f"another result: {_where(result, mine.result)}"
    is_bound = difference is None or difference.retries is not None
    if mine.retries > most or (is_bound and mine.retries < most):
        yield f"retried {mine.retries} times, where {most} are expected"


def _where(expected: Any, mine: Any) -> str:
    """Return where two results part."""
    parts = [expected, mine] if isinstance(expected, list) and isinstance(mine, list) else [[expected], [mine]]
    at = next((at for at, pair in enumerate(zip(*parts, strict=False)) if pair[0] != pair[1]), len(parts[0]))
    return f"part {at}: {str(parts[1][at:])[:200]} in place of {str(parts[0][at:])[:200]}"


def _records(mine: OurCall, counts: Counts, fault: Fault) -> Iterator[str]:
    for name, records in (("client.calls", mine.calls), ("on_call_end", mine.hooked)):
        if len(records) != 1:
            yield f"{len(records)} records in {name}"
    if len(mine.closed) != len(mine.opened):
        yield f"{len(mine.opened)} sessions opened, {len(mine.closed)} closed"
    if len(mine.calls) != 1:
        return
    (record,) = mine.calls
    if mine.error is not None:
        if (record.outcome, record.error) != ("failed", type(mine.error).__name__):
            yield f"the record says {record.outcome}, {record.error}, where {mine} was raised"
        status = getattr(mine.error, "status_code", None)
        if status is not None and record.status_code != status:
            yield f"the record's status is {record.status_code}, the error's {status}"
    else:
        is_whole = record.finish_reason is not None or not record.stream
        if (record.outcome, record.error) != ("completed" if is_whole else "truncated", None):
            yield f"the record says {record.outcome}, {record.error} of an answer that ended {record.finish_reason}"
    made = len(record.attempts) + sum(each.resent for each in record.attempts)
    # One that was given up may not have come to all of its requests.
    least = made - sum(each.given_up is not None for each in record.attempts)
    each_takes = 1 + fault.hops if fault.peer in ("script", "emulator") else 0
    if not least * each_takes <= counts.requests <= made * each_takes:
        yield f"the record has {made} attempts, the server {counts.requests} requests"
    # The one that gave the answer, or that failed last, stands last.
    if sorted(each.number for each in record.attempts) != list(range(1, len(record.attempts) + 1)):
        yield "the attempts are not numbered one by one"
    if fault.is_held_back and record.bursts is None:
        yield "the record does not say that the stream was held back"
    if any(each.wire.ended_ns is None for each in record.attempts):
        yield "an attempt has no end"


def _pauses(mine: OurCall, fault: Fault) -> Iterator[str]:
    """Each retry waits longer than the provider has announced, by another part of at most a quarter."""
    announced = re.search(r"retry_after=([\d.]+)", fault.emulator)
    if announced is None or mine.retries < 1:
        return
    least_s = float(announced[1])
    pauses_s = [float(pause) for pause in re.findall(r" in ([\d.]+) seconds", "\n".join(mine.logged))]
    if len(set(pauses_s)) != mine.retries or not all(least_s < pause <= least_s * 1.25 for pause in pauses_s):
        yield f"pauses of {pauses_s} s before {mine.retries} retries, where {least_s} s were announced"


def _secrets(mine: OurCall) -> Iterator[str]:
    records = (*mine.calls, *mine.hooked)
    texts = {
        "the log": "\n".join(mine.logged),
        "the record": "".join(repr(record) + json.dumps(record.to_dict(), default=repr) for record in records),
    }
    if mine.error is not None:
        chain = [mine.error, mine.error.__cause__, mine.error.__context__]
        texts["the error"] = " ".join(f"{each} {each!r}" for each in chain if each is not None)
        texts["the traceback"] = "".join(traceback.format_exception(mine.error))
    for name, text in texts.items():
        for what, secret in (("key", KEY), ("prompt", PROMPT)):
            if secret in text:
                yield f"the {what} stands in {name}"
    if "Rhine" in texts["the record"]:
        yield "the answer stands in the record"
