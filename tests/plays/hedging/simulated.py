"""Calls in simulated time: an upstream whose first tokens come late as a function says, and the driver's part in it."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import MappingProxyType

from fastlane import Call, CallRecord, Hedging
from fastlane.records import Attempt, HedgingRecord, Timeline, Usage, WireStamps
from tests.with_sections import with_sections

NS = 1_000_000_000
ORIGIN = "https://a.example:443"
CHAT = "/chat/completions"
_numbers = count()

FirstToken = Callable[[Random, float], float]
"""Seconds to a first token, given the seconds since the beginning."""


def usual(late_share: float = 0.0, *, median_s: float = 0.5, spread: float = 0.25, factor: float = 20.0) -> FirstToken:
    def first_token(random: Random, _: float) -> float:
        late = random.random() < late_share
        return median_s * random.lognormvariate(0, spread) * (factor if late else 1)

    return first_token


def call(call_id: str = "1", *, at_s: float = 0.0, model: str = "m", size: int = 4_000, **fields: object) -> Call:
    body = {"model": model, "messages": [{"role": "user", "content": "x" * size}]}
    given = {"endpoint": CHAT, "origin": ORIGIN, "body": body, "stream": True, **fields}
    # As the clients show it.
    given["body"] = MappingProxyType(given["body"])  # type: ignore[arg-type]
    return Call(call_id=call_id, issued_ns=ns(at_s), **given)  # type: ignore[arg-type]


def ns(seconds: float) -> int:
    # Not from 0, where a moment that was never set would not be noticed.
    return 1_000 * NS + round(seconds * NS)


def attempt(number: int, started_s: float, ended_s: float, **fields: object) -> Attempt:
    wire = WireStamps(started_ns=ns(started_s), ended_ns=ns(ended_s))
    given = {"kind": "first" if number == 1 else "hedge", "origin": ORIGIN, "model": "m", **fields}
    return Attempt(number=number, wire=wire, **given)  # type: ignore[arg-type]


def record(
    call_id: str,
    attempts: tuple[Attempt, ...],
    *,
    started_s: float,
    first_token_s: float | None,
    ended_s: float,
    **fields: object,
) -> CallRecord:
    first_ns = None if first_token_s is None else ns(first_token_s)
    timeline = Timeline(
        started_wall_ns=0,
        started_ns=ns(started_s),
        ended_ns=ns(ended_s),
        first_token_ns=first_ns,
        token_ns=array("q", [] if first_ns is None else [first_ns]),
    )
    given = {"model": "m", "stream": True, "outcome": "completed", "method": "POST", "endpoint": CHAT, **fields}
    return CallRecord(call_id=call_id, origin=ORIGIN, timeline=timeline, attempts=attempts, **with_sections(given))


@dataclass
class Outcome:
    """What came of a run."""

    first_tokens_s: list[float] = field(default_factory=list)
    hedged: list[bool] = field(default_factory=list)
    why_not: list[str | None] = field(default_factory=list)
    tokens: float = 0.0
    extra_tokens: float = 0.0
    most_over_budget: float = -1e9
    """The most that second attempts ever were above the share of the tokens of the calls that were over by then."""

    def percentile(self, share: float) -> float:
        return sorted(self.first_tokens_s)[int(share * len(self.first_tokens_s))]

    def share_hedged(self, first: int, last: int) -> float:
        return sum(self.hedged[first:last]) / len(self.hedged[first:last])


def run(
    play: Hedging,
    first_token: FirstToken,
    *,
    calls: int,
    per_s: float = 20.0,
    seed: int = 0,
    tokens: tuple[int, int] = (1_000, 300),
    decode_s: float = 2.0,
    sizes: Callable[[Random], float] = lambda _: 1.0,
) -> Outcome:
    """Let calls come at random moments, `per_s` a second, and do what the driver does: ask when one is late."""
    random = Random(seed)
    outcome = Outcome()
    events: list[tuple[float, int, Callable[[float], None]]] = []

    def at(moment_s: float, do: Callable[[float], None]) -> None:
        heapq.heappush(events, (moment_s, next(_numbers), do))

    def begin(now_s: float) -> None:
        number = len(outcome.hedged)
        size = sizes(random)
        input_tokens, output_tokens = (round(size * each) for each in tokens)
        planned = play.memory.plan(call(str(number), at_s=now_s, size=4 * input_tokens))
        outcome.hedged.append(False)
        outcome.why_not.append(planned.why_not)
        outcome.first_tokens_s.append(0.0)
        own_s = first_token(random, now_s)
        delay_s = planned.delay_s

        def over(first_s: float, hedging: HedgingRecord, attempts: tuple[Attempt, ...]) -> None:
            outcome.first_tokens_s[number] = first_s
            extra = hedging.extra_input_tokens or 0

            def end(ended_s: float) -> None:
                outcome.tokens += input_tokens + output_tokens
                usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=0)
                ended = record(
                    str(number), attempts, started_s=now_s, first_token_s=now_s + first_s, ended_s=ended_s, usage=usage
                )
                play.memory.note(ended, [planned], extra)

            outcome.extra_tokens += extra
            outcome.most_over_budget = max(
                outcome.most_over_budget, outcome.extra_tokens - play.budget * outcome.tokens
            )
            at(now_s + first_s + decode_s, end)

        def late(late_s: float) -> None:
            assert delay_s is not None
            why_not = play.memory.reserve(planned)
            outcome.why_not[number] = why_not
            if why_not is not None:
                section = HedgingRecord(delay_s=delay_s, hedged=False, won=None, why_not=why_not)
                over(own_s, section, (attempt(1, now_s, now_s + own_s + decode_s),))
                return
            outcome.hedged[number] = True
            other_s = delay_s + first_token(random, late_s)
            won = other_s < own_s
            first_s = min(other_s, own_s)
            section = HedgingRecord(
                delay_s=delay_s,
                hedged=True,
                won=won,
                why_not=None,
                extra_input_tokens=input_tokens,
            )
            ends = (now_s + first_s, now_s + first_s + decode_s)
            over(
                first_s,
                section,
                (
                    attempt(1, now_s, ends[not won], given_up="lost" if won else None),
                    attempt(2, late_s, ends[won], given_up=None if won else "lost"),
                ),
            )

        if delay_s is not None and own_s > delay_s:
            at(now_s + delay_s, late)
        else:
            section = HedgingRecord(delay_s=delay_s, hedged=False, won=None, why_not=planned.why_not)
            if delay_s is not None:
                at(now_s + own_s, lambda _: planned.lateness.count(is_late=False))
            over(own_s, section, (attempt(1, now_s, now_s + own_s + decode_s),))

    moment_s = 0.0
    for _ in range(calls):
        moment_s += random.expovariate(per_s)
        at(moment_s, begin)
    while events:
        moment_s, _, do = heapq.heappop(events)
        do(moment_s)
    return outcome
