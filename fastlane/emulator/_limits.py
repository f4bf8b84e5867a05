"""Rate limits: what each API key has taken of each model in a minute, and the 429 for one that is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from secrets import token_bytes

from fastlane.emulator._errors import ApiError
from fastlane.emulator.settings import KeyRateLimits

Headers = tuple[tuple[str, str], ...]

_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS
# A wait is rounded up to a nanosecond, and what has come back by then is a sum of floats.
_CLOSE = 1e-6
_SHORT = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}
# A client may come with any number of keys and models.
_MOST_ACCOUNTS = 65_536
_SECRET = token_bytes(16)


class Bucket:
    """One limit of a minute, which refills evenly and holds `burst` times the limit.

    Moments are of one clock, in nanoseconds.
    """

    def __init__(self, limit: float, now: int, burst: float = 1.0) -> None:
        self.limit = limit
        self._capacity = max(1.0, limit * burst)
        self._rate = limit / _MINUTE_NS
        self._level = self._capacity
        self._at = now

    def room(self, now: int) -> float:
        """Return how much is left."""
        self._level = min(self._capacity, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until `amount` may be taken: 0 for now, None for never, because it is too much at once."""
        missing = amount - self.room(now)
        if missing <= _CLOSE:
            return 0
        return None if amount > self._capacity + _CLOSE else self._filled_ns(now, missing)

    def _filled_ns(self, now: int, missing: float) -> int:
        return math.ceil(missing / self._rate)

    def take(self, now: int, amount: float) -> None:
        """Take it."""
        self._level = self.room(now) - amount

    def refused(self, now: int, amount: float) -> None:
        """Count something that was refused: it takes no more than there is."""
        level = self.room(now)
        self._level = min(level, max(0.0, level - amount))

    def reset_ns(self, now: int) -> int:
        """Return how long until all of the limit is there again, if nothing more is taken."""
        return self._filled_ns(now, self._capacity - self.room(now))


class FixedWindow(Bucket):
    """Begins with the first request and is whole again after each minute; it knows no burst."""

    def __init__(self, limit: float, now: int, burst: float = 1.0) -> None:
        super().__init__(limit, now)

    def room(self, now: int) -> float:
        minutes = (now - self._at) // _MINUTE_NS
        if minutes > 0:
            self._at += minutes * _MINUTE_NS
            self._level = self._capacity
        return self._level

    def _filled_ns(self, now: int, missing: float) -> int:
        return self._at + _MINUTE_NS - now


class Quantized(Bucket):
    """A bucket of which every second gives its share only, however full it is.

    What is larger than a second's share passes when the second is untouched, and takes from those that follow.
    """

    def __init__(self, limit: float, now: int, burst: float = 1.0) -> None:
        super().__init__(limit, now, burst)
        self._share = limit / 60
        self._began = now
        self._used = 0.0

    def _turn(self, now: int) -> None:
        seconds = (now - self._began) // _SECOND_NS
        self._began += seconds * _SECOND_NS
        self._used = max(0.0, self._used - seconds * self._share)

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until both the bucket and a second have room."""
        whole = super().wait_ns(now, amount)
        self._turn(now)
        over = self._used if amount > self._share else self._used + amount - self._share
        if whole is None or over <= _CLOSE:
            return whole
        seconds = max(1, math.ceil((over - _CLOSE) / self._share))
        return max(whole, self._began + seconds * _SECOND_NS - now)

    def take(self, now: int, amount: float) -> None:
        self._turn(now)
        super().take(now, amount)
        self._used += amount

    def refused(self, now: int, amount: float) -> None:
        """Take what is there; a second that is full stays full, and no longer."""
        self._turn(now)
        super().refused(now, amount)
        self._used = max(self._used, min(self._used + amount, self._share))


def duration(nanoseconds: int) -> str:
    """Write a time as OpenAI does: 12ms, 1s, 8.64s, 6m0s; rounded up to a millisecond."""
    milliseconds = -(-nanoseconds // 1_000_000)
    if milliseconds < 1_000:
        return f"{milliseconds}ms" if milliseconds > 0 else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1_000:g}s" if minutes else f"{rest / 1_000:g}s"


_WINDOWS: Mapping[str, type[Bucket]] = {"bucket": Bucket, "fixed": FixedWindow, "quantized": Quantized}


class LimitExceeded(ApiError):  # noqa: N818  (a response, as its base is)
    """A request that was refused for load; `why` is what the record says."""

    def __init__(
        self, why: str, status: int, message: str, *, type: str, code: str | None, headers: Headers = ()
    ) -> None:
        super().__init__(status, message, type=type, code=code, headers=headers)
        self.why = why


class Limiter:
    """One set of limits, for every key and model that it holds for."""

    def __init__(self, limits: KeyRateLimits) -> None:
        self.limits = limits
        self._meters: dict[tuple[bytes, str], dict[str, Bucket]] = {}

    def _of(self, key: str, model: str, now: int) -> dict[str, Bucket]:
        # A digest, from which the key cannot be had back.
        account = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8, key=_SECRET).digest()
        meters = self._meters.get((account, model))
        if meters is None:
            if len(self._meters) >= _MOST_ACCOUNTS:
                del self._meters[next(iter(self._meters))]
            limits = {"requests": self.limits.requests_per_minute, "tokens": self.limits.tokens_per_minute}
            meters = {unit: self._meter(limit, now) for unit, limit in limits.items() if limit is not None}
            self._meters[account, model] = meters
        return meters

    def _meter(self, limit: float, now: int) -> Bucket:
        return _WINDOWS[self.limits.window](limit, now, self.limits.burst)

    def spend(self, now: int, key: str, model: str, tokens: int) -> Headers:
        """Count a request of so many tokens; return the headers of its response.

        Raises LimitExceeded where it is over a limit.
        """
        meters = self._of(key, model, now)
        costs = {"requests": 1, "tokens": tokens}
        waits = {unit: meter.wait_ns(now, costs[unit]) for unit, meter in meters.items()}
        if any(wait != 0 for wait in waits.values()):
            # The limit that takes longest is named; its wait is as it is once this request has counted too.
            unit = max(waits, key=lambda each: math.inf if waits[each] is None else float(waits[each] or 0))
            if "requests" in meters:
                meters["requests"].refused(now, 1)
            raise self._refusal(now, model, meters, unit, costs[unit])
        for unit, meter in meters.items():
            meter.take(now, costs[unit])
        return _headers(now, meters)

    @staticmethod
    def _refusal(now: int, model: str, meters: Mapping[str, Bucket], unit: str, cost: int) -> LimitExceeded:
        meter = meters[unit]
        wait = meter.wait_ns(now, cost)
        headers = _headers(now, meters)
        about = f"{model} in organization org-emulator on {_SHORT[unit]}: Limit {meter.limit:g}"
        if wait is None:
            why = "too_large"
            message = (
                f"Request too large for {about}, Requested {cost:g}. The input or output tokens must be reduced in "
                "order to run successfully."
            )
        else:
            why = f"{unit}/minute"
            used = math.ceil(max(0.0, meter.limit - meter.room(now)))
            message = (
                f"Rate limit reached for {about}, Used {used}, Requested {cost:g}. Please try again in "
                f"{duration(wait)}."
            )
            headers += (("retry-after", str(-(-wait // _SECOND_NS))), ("retry-after-ms", str(-(-wait // 1_000_000))))
        return LimitExceeded(why, 429, message, type=unit, code="rate_limit_exceeded", headers=headers)


def _headers(now: int, meters: Mapping[str, Bucket]) -> Headers:
    """Return OpenAI's headers: https://developers.openai.com/api/docs/guides/rate-limits."""
    headers: list[tuple[str, str]] = []
    for unit, meter in meters.items():
        # What is a whole number but for the last bit of a sum is that number.
        numbers = {"limit": meter.limit, "remaining": max(0.0, meter.room(now))}
        headers += [(f"x-ratelimit-{what}-{unit}", str(int(number + 1e-6))) for what, number in numbers.items()]
        headers.append((f"x-ratelimit-reset-{unit}", duration(meter.reset_ns(now))))
    return tuple(headers)
