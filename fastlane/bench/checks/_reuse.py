"""Whether arms reuse alike what a provider lets them: connections, and prompts that it has seen before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ..recorded import ArmInfo, Cell
from ._arms import CACHED, CHANCE, CONNECTIONS, compared, verdict
from ._sight import Check, Sight, percent, result
from ._tests import fisher
from ._types import CheckResult

OPENED_TOLERANCE: Final = 0.1
"""Of requests that open a connection: a difference of less is a server that closes one now and then."""
CACHED_TOLERANCE: Final = 0.1
"""Of input tokens that came from a cache."""

# openai's Stream breaks off at [DONE] and closes the response, whose end is unread; AsyncStream reads it to its end.
_LEFT_UNREAD: Final = (
    ", because openai's synchronous client stops reading a stream at [DONE], before the end of the response, and such "
    "a connection cannot be used again"
)

FORBIDDEN: Final = "cache hits where none may be"


def same_connections(sight: Sight) -> Iterator[CheckResult]:
    """Look for arms that open connections for a share of their measured requests that differs from the reference's.

    Only measured requests count: what a cold or a warm-up request opens is in no figure. The same number of
    connections must be opened by the reference and its copy, and by arms whose plays and client have nothing to do
    with connections: there a difference is a fault of the instrument. Where a play or another client keeps
    connections, saving them is its work, and the difference is told as what it is.
    """
    for cell in sight.recorded.header.cells:
        shares = {arm.name: _opened(sight, cell, arm) for arm in sight.arms}
        for arm in sight.arms:
            reference = sight.reference(arm)
            own, theirs = shares[arm.name], shares[reference.name]
            if own is None or theirs is None:
                yield result(
                    CONNECTIONS, "not checked", f"the connections of {arm.name} are not known", cell=cell, arm=arm
                )
                continue
            share, base = own[0] / own[1], theirs[0] / theirs[1]
            chance = fisher(*theirs, *own)
            seen = f"{arm.name} opened a connection for {own[0]} of {own[1]} requests"
            if arm is not reference and chance < CHANCE / len(sight.others) and abs(share - base) > OPENED_TOLERANCE:
                level, why = verdict(CONNECTIONS, sight, arm)
                yield result(
                    CONNECTIONS,
                    level,
                    f"{seen}, {reference.name} for {theirs[0]} of {theirs[1]} (Fisher p = {chance:.2g}): opening is in "
                    f"the time to first token{why}",
                    cell=cell,
                    arm=arm,
                    share=share,
                    reference_share=base,
                )
            elif share > 0.5:
                yield result(
                    CONNECTIONS,
                    "flagged",
                    f"{seen}: {_who_closes(sight, cell, arm)}; opening is in every time to first token",
                    cell=cell,
                    arm=arm,
                    share=share,
                )
            else:
                yield result(CONNECTIONS, "passed", seen, cell=cell, arm=arm, share=share)


def _opened(sight: Sight, cell: Cell, arm: ArmInfo) -> tuple[int, int] | None:
    samples = sight.measured(cell, arm)
    openers = sight.recorded.openers(samples)
    return None if openers is None or not samples else (len(openers), len(samples))


def _who_closes(sight: Sight, cell: Cell, arm: ArmInfo) -> str:
    """Return who ended the connections that an arm's requests opened, by the provider's log."""
    tags = {sample.tag for sample in sight.measured(cell, arm)}
    closed = Counter(entry.connection_closed_by for entry in sight.recorded.log or () if entry.tag in tags)
    client, server = closed["client"], closed["server"]
    if not client and not server:
        return "who closed them is not known"
    if client < server:
        return f"the provider closed {server} of them"
    why = _LEFT_UNREAD if arm.client == "openai.OpenAI" else ""
    return f"its client closed {client} of them{why}"


def same_cached(sight: Sight) -> Iterator[CheckResult]:
    """Look for arms that had another share of their input from a cache than the reference."""
    for cell, arm in compared(sight):
        reference = sight.reference(arm)
        if cell.caching_forbidden:
            continue
        theirs, own = _cached(sight, cell, reference), _cached(sight, cell, arm)
        if theirs is None or own is None:
            yield result(CACHED, "not checked", f"nobody says what {arm.name} had from a cache", cell=cell, arm=arm)
        elif abs(own - theirs) > CACHED_TOLERANCE:
            level, why = verdict(CACHED, sight, arm)
            yield result(
                CACHED,
                level,
                f"{percent(own)} of {arm.name}'s input came from the provider's cache, {percent(theirs)} of "
                f"{reference.name}'s: what is cached is not prefilled{why}",
                cell=cell,
                arm=arm,
                share=own,
                reference_share=theirs,
            )
        else:
            yield result(
                CACHED, "passed", f"{percent(own)} of {arm.name}'s input came from a cache", cell=cell, arm=arm
            )


def _cached(sight: Sight, cell: Cell, arm: ArmInfo) -> float | None:
    # A provider that does not report cached tokens has not said that there were none.
    known = [
        (sample.cached_tokens, sample.input_tokens)
        for sample in sight.answered(cell, arm)
        if sample.cached_tokens is not None and sample.input_tokens
    ]
    return sum(cached for cached, _ in known) / sum(whole for _, whole in known) if known else None


def no_cached(sight: Sight) -> Iterator[CheckResult]:
    """Look for cache hits in cells whose prompts are unique so that there can be none."""
    for cell in sight.recorded.header.cells:
        if not cell.caching_forbidden:
            continue
        for arm in sight.arms:
            known = [sample for sample in sight.answered(cell, arm) if sample.cached_tokens is not None]
            hits = sum(bool(sample.cached_tokens) for sample in known)
            if hits:
                yield result(
                    FORBIDDEN,
                    "refused",
                    f"{hits} of {len(known)} prompts of {arm.name} came in part from the provider's cache, in a cell "
                    "that forbids it: these times to first token are not of the prompts' lengths; let no two prompts "
                    "begin alike",
                    cell=cell,
                    arm=arm,
                    hits=hits,
                )
            elif known:
                yield result(FORBIDDEN, "passed", f"{arm.name} had nothing from a cache", cell=cell, arm=arm)
            else:
                yield result(
                    FORBIDDEN, "not checked", f"nobody says what {arm.name} had from a cache", cell=cell, arm=arm
                )


CHECKS: Final = (
    Check(name=CONNECTIONS, line="Requests that opened a connection, beside the reference's.", look=same_connections),
    Check(name=CACHED, line="Input from the provider's cache, beside the reference's.", look=same_cached),
    Check(name=FORBIDDEN, line="Cache hits in a cell of unique prompts.", look=no_cached),
)
