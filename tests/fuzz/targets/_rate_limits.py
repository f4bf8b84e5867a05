"""Headers of rate limits: any text in them, and no wait that is longer than any that is meant."""

from __future__ import annotations

import math
import random
from functools import cache

from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.headers import MAX_LIMIT, limits_of, reset_s
from fastlane.plays.rate_limits.limiter import MAX_WAIT_S, RateLimiter
from fastlane.protocol.header_times import MAX_RETRY_S, number, retry_after_s
from fastlane.providers import facts_named, names
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._target import holds

_TEXTS = (
    "0", "1", "100", "-1", "1e3", "1e400", "nan", "inf", "-inf", "1_000", "٣", " 5 ", "9" * 39, "9" * 400, "0.001",
    "1e-9",
    "9223372036854775807", "", " ", "6m0s", "1h2m3s", "1d", "99999999d", "5ms", "1.5s", "s", "ms", "1795341600",
    "2026-11-22",
    "1795341600000", "2026-11-22T10:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
    "20261122T100000Z",
    "Sun, 22 Nov 2026 10:00:00 GMT", "Sun, 22 Nov 2026 10:00:00 -9999", "Mon, 1 Jan 0001 00:00:00 +9999", "1, 2",
    "1;w=60",
    "Sun, 22 Nov 99999 10:00:00 GMT", "\x00", "é", "1" * 30 + "ms", "1s1s", "2026-W47-7", "Fri, 31 Feb 2026 0:0:0 GMT",
    "²s",
    "1" * 400 + "s", "12345678901234567890d", "0" * 38, "0x10", "1e12", "1.0000000000001e12", "32d", "33d",
)  # fmt: skip
_NOW_S = 1_000_000.0
_LONGEST_S = MAX_WAIT_S + 1.0
"""With the jitter of a pause."""


@cache
def _facts() -> tuple[str, ...]:
    return tuple(name for name in names() if facts_named(name).rate_limits is not None)


def _text(draw: Drawn) -> str:
    kind = draw.randrange(4)
    if kind < 2:
        return draw.choice(_TEXTS)
    if kind == 2:
        return draw.choice(_TEXTS) + draw.choice(_TEXTS)
    return draw.bytes_of(30).decode("latin-1")


def check(data: bytes) -> None:
    """Answers with drawn headers, at any distance of time, to a provider's facts."""
    draw = Drawn(data)
    check_readers(_text(draw))
    facts = facts_named(draw.choice(_facts())).rate_limits
    limiter = RateLimiter(facts, jitter=random.Random(0))
    fields = sorted({
        name for limit in limits_of(facts).values()
        for name in (limit.limit_header, limit.remaining_header, limit.reset_header) if name
    } | {"retry-after", "retry-after-ms", "date", "x-ratelimit-reset"})  # fmt: skip
    now_ns = int(_NOW_S * 1e9)
    same = _text(draw)
    for _ in range(12):
        if draw.spent:
            break
        tokens = draw.choice((0, 1, 1_000, 10**7))
        cost = RequestCost(1.0, tokens, tokens, tokens)
        _check_wait(limiter, now_ns, cost)
        sent = limiter.spend(now_ns, cost)
        now_ns += draw.choice((0, 1, 10**6, 10**9, 10**11, 10**15))
        headers = {name: same if draw.randrange(4) == 0 else _text(draw) for name in fields if draw.randrange(3)}
        limiter.answered(now_ns, sent, draw.choice((200, 200, 429, 503, 529, 400, 500)), headers)
        if draw.randrange(2):
            used = draw.choice((None, 0, 5, 10**12))
            limiter.settled(now_ns, sent, None if used is None else RequestCost(1.0, used, used, used))
        _check_wait(limiter, now_ns, cost)


def _check_wait(limiter: RateLimiter, now_ns: int, cost: RequestCost) -> None:
    for patient in (False, True):
        ready_ns = limiter.ready_ns(now_ns, cost, patient=patient)
        wait_s = (ready_ns - now_ns) / 1e9
        holds(0 <= wait_s <= _LONGEST_S, "a request waits for longer than any provider means", wait_s, patient)


def check_readers(text: str) -> None:
    read = number(text)
    holds(read is None or math.isfinite(read), "a number is none", text, read)
    for form in (None, "duration", "seconds", "milliseconds", "rfc3339", "unix", "unix_milliseconds"):
        reset = reset_s(text, form, lambda: _NOW_S)
        holds(reset is None or -1 <= reset <= 32 * 86_400, "a reset is no time", text, form, reset)
    for names_ in (("retry-after",), ("retry-after-ms", "retry-after")):
        asked = retry_after_s(names_, dict.fromkeys(names_, text), lambda: _NOW_S)
        holds(asked is None or 0 <= asked <= MAX_RETRY_S, "a rest is no time", text, asked)
    holds(MAX_LIMIT == 1e12, "limits have another bound")


def seeds() -> list[bytes]:
    """Bytes that draw answers."""
    return chance(40, 300)
