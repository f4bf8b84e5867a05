"""What a request passes before the model works on it: rate limits and the queue."""

from __future__ import annotations

import asyncio
import heapq
import math

from fastlane.emulator._request import ApiError
from fastlane.emulator.settings import KeyRateLimits

Headers = tuple[tuple[str, str], ...]

_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS
# A wait is rounded up to a nanosecond, and what has come back by then is a sum of floats.
_CLOSE = 1e-6
_UNITS = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}


class Bucket:
    """A token bucket that refills in steps of `step_ns`. Times are of one clock, in nanoseconds."""

    def __init__(self, limit: float, capacity: float, now: int, step_ns: int = 1) -> None:
        self.capacity = capacity
        self._per_step = limit / _MINUTE_NS * step_ns
        self._step_ns = step_ns
        self._level = capacity
        self._at = now

    def room(self, now: int) -> float:
        steps = (now - self._at) // self._step_ns
        self._level = min(self.capacity, self._level + steps * self._per_step)
        self._at += steps * self._step_ns
        return self._level

    def wait_ns(self, now: int, amount: float) -> int:
        missing = amount - self.room(now)
        if missing <= _CLOSE:
            return 0
        return self._at + math.ceil(round(missing / self._per_step, 6)) * self._step_ns - now

    def take(self, now: int, amount: float) -> None:
        self._level = self.room(now) - amount


class Meter:
    """The limit of one unit for one key and model.

    A `quantized` one has a second bucket, of a second's share; an amount above the share passes when that is full, and
    takes from the seconds that follow.
    """

    def __init__(self, limit: float, now: int, window: str = "bucket", burst: float = 1.0) -> None:
        self.limit = limit
        is_fixed = window == "fixed"
        self._main = Bucket(limit, limit if is_fixed else max(1.0, limit * burst), now, _MINUTE_NS if is_fixed else 1)
        self._buckets = [self._main]
        if window == "quantized":
            self._buckets.append(Bucket(limit, limit / 60, now, _SECOND_NS))

    def room(self, now: int) -> float:
        return self._main.room(now)

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until `amount` may be taken: 0 for now, None for never, because it is too much at once."""
        if amount > self._main.capacity + _CLOSE:
            return None
        return max(bucket.wait_ns(now, min(amount, bucket.capacity)) for bucket in self._buckets)

    def take(self, now: int, amount: float, *, refused: bool = False) -> None:
        """Count something; what was `refused` takes no more than there is."""
        for bucket in self._buckets:
            bucket.take(now, min(amount, max(0.0, bucket.room(now))) if refused else amount)

    def headers(self, now: int, unit: str) -> Headers:
        """Return OpenAI's headers: https://developers.openai.com/api/docs/guides/rate-limits."""
        return (
            (f"x-ratelimit-limit-{unit}", str(int(self.limit + _CLOSE))),
            (f"x-ratelimit-remaining-{unit}", str(int(max(0.0, self.room(now)) + _CLOSE))),
            (f"x-ratelimit-reset-{unit}", duration(self._main.wait_ns(now, self._main.capacity))),
        )


def duration(nanoseconds: int) -> str:
    """Write a time as OpenAI does: 12ms, 1s, 8.64s, 6m0s; rounded up to a millisecond."""
    milliseconds = -(-nanoseconds // 1_000_000)
    if milliseconds < 1_000:
        return f"{milliseconds}ms" if milliseconds > 0 else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1_000:g}s" if minutes else f"{rest / 1_000:g}s"


class Limiter:
    def __init__(self, limits: KeyRateLimits) -> None:
        self.limits = limits
        self._meters: dict[tuple[int, str], dict[str, Meter]] = {}

    def _of(self, key: str, model: str, now: int) -> dict[str, Meter]:
        account = (hash(key), model)  # the key cannot be had back from a hash
        if account not in self._meters:
            limits = {"requests": self.limits.requests_per_minute, "tokens": self.limits.tokens_per_minute}
            self._meters[account] = {
                unit: Meter(limit, now, self.limits.window, self.limits.burst)
                for unit, limit in limits.items()
                if limit is not None
            }
        return self._meters[account]

    def spend(self, now: int, key: str, model: str, tokens: int) -> Headers:
        """Count a request; return the headers of its response. Raises ApiError if it is over a limit."""
        meters = self._of(key, model, now)
        costs = {"requests": 1, "tokens": tokens}
        waits = {unit: meter.wait_ns(now, costs[unit]) for unit, meter in meters.items()}
        # The limit that takes longest is named.
        over = max((unit for unit in waits if waits[unit] != 0), key=lambda unit: waits[unit] or math.inf, default=None)
        for unit, meter in meters.items():
            if over is None or unit == "requests":
                meter.take(now, costs[unit], refused=over is not None)
        headers = tuple(header for unit, meter in meters.items() for header in meter.headers(now, unit))
        if over is None:
            return headers
        limit, used = meters[over].limit, math.ceil(max(0.0, meters[over].limit - meters[over].room(now)))
        about = f"{model} in organization org-emulator on {_UNITS[over]}: Limit {limit:g}"
        # As it is once this request has counted too.
        wait = meters[over].wait_ns(now, costs[over])
        if wait is None:
            why = "too_large"
            message = (
                f"Request too large for {about}, Requested {costs[over]:g}. The input or output tokens must be reduced "
                "in order to run successfully."
            )
        else:
            why = f"{over}/minute"
            message = (
                f"Rate limit reached for {about}, Used {used}, Requested {costs[over]:g}. Please try again in "
                f"{duration(wait)}."
            )
            headers += (("retry-after", str(-(-wait // _SECOND_NS))), ("retry-after-ms", str(-(-wait // 1_000_000))))
        raise ApiError(429, message, type=over, code="rate_limit_exceeded", headers=headers, refused=why)


class AdmissionQueue:
    """Lets `slots` requests run at once: the highest rank first, then first come, first served."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._running = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for _, _, turn in self._waiting)

    @property
    def full(self) -> bool:
        return self._running >= self._slots

    def set_slots(self, slots: int) -> None:
        self._slots = slots
        self._hand_over()

    async def enter(self, rank: int) -> bool:
        """Take a slot, waiting if there is none; return whether it had to wait."""
        if not self.full:
            self._running += 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (-rank, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # The slot may have been handed over in the moment of the cancellation.
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return True

    def leave(self) -> None:
        self._running -= 1
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting and not self.full:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._running += 1
                turn.set_result(None)
