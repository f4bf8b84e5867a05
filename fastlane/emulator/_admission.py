"""What a request passes before the model works on it: its tier, its rate limits and the queue."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import NamedTuple

from fastlane._clock import now_ns
from fastlane.emulator._log import RequestLog
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._request import ApiError
from fastlane.emulator.settings import KeyRateLimits, ProviderModel, ServiceTier

Headers = tuple[tuple[str, str], ...]

_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS
# A wait is rounded up to a nanosecond, and what has come back by then is a sum of floats.
_CLOSE = 1e-6
_SHORT = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}
# A client may come with any number of keys and models.
_MOST_ACCOUNTS = 65_536
# OpenAI's `fast` is its `priority`.
_OTHER_NAMES = {"fast": "priority"}


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
        """Take an amount that has room."""
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
        self._meters: dict[tuple[int, str], dict[str, Bucket]] = {}

    def _of(self, key: str, model: str, now: int) -> dict[str, Bucket]:
        account = (hash(key), model)  # from a hash the key cannot be had back
        meters = self._meters.get(account)
        if meters is None:
            if len(self._meters) >= _MOST_ACCOUNTS:
                del self._meters[next(iter(self._meters))]
            limits = {"requests": self.limits.requests_per_minute, "tokens": self.limits.tokens_per_minute}
            kind, burst = _WINDOWS[self.limits.window], self.limits.burst
            meters = {unit: kind(limit, now, burst) for unit, limit in limits.items() if limit is not None}
            self._meters[account] = meters
        return meters

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


class PlaceQueue:
    """Lets `places` requests run at once: the highest rank first, then first come, first served."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0
        self.waiting = 0
        """How many wait for a place."""

    @property
    def full(self) -> bool:
        """Whether one who comes now would have to wait."""
        return self._free <= 0

    def set_places(self, places: int) -> None:
        """Let so many run at once from now on; those that run already stay."""
        self._free += places - self._places
        self._places = places
        while self._free > 0 and self._hand_over():
            self._free -= 1

    async def enter(self, rank: int) -> bool:
        """Take a place, waiting if there is none; return whether it had to wait."""
        if self._free > 0:
            self._free -= 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (-rank, self._arrivals, turn))
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            # The place may have been handed over in the very moment of the cancellation.
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        finally:
            self.waiting -= 1
        return True

    def leave(self) -> None:
        """Give the place to the next in line."""
        if self._free < 0 or not self._hand_over():
            self._free += 1

    def _hand_over(self) -> bool:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class Admitted(NamedTuple):
    """A request that may go on to the queue."""

    tier_name: str
    tier: ServiceTier
    headers: Headers


class Admission:
    """All requests of one provider come in here. All of its state changes happen on one event loop."""

    def __init__(self, model: ProviderModel, *, seed: int) -> None:
        self.queue = PlaceQueue(model.concurrency)
        self._seed = seed
        self._limiters: dict[str | None, Limiter] = {}
        self.change(model)

    def change(self, model: ProviderModel) -> None:
        """Keep to these settings from now on. Limits that differ begin anew; who is inside stays."""
        self._model = model
        self.queue.set_places(model.concurrency)
        limits: dict[str | None, KeyRateLimits | None] = {None: model.rate_limits}
        limits.update(model.model_rate_limits)
        before = self._limiters
        self._limiters = {
            name: before[name] if name in before and before[name].limits == each else Limiter(each)
            for name, each in limits.items()
            if each is not None
        }

    def admit(self, prompt: GenerationRequest, record: RequestLog, *, key: str) -> Admitted:
        """Take a request in, or refuse it. Raises LimitExceeded."""
        try:
            name = self._tier(prompt.service_tier, record.sequence_number)
            places = self._model.queue_places
            if places is not None and self.queue.full and self.queue.waiting >= places:
                message = "The server is overloaded with other requests. Try again later."
                raise LimitExceeded("overload", 503, message, type="server_error", code="server_is_overloaded")
            limiter = self._limiters.get(prompt.model) or self._limiters.get(None)
            headers: Headers = ()
            if limiter is not None:
                tokens = record.prompt_tokens + (prompt.output_limit or 0) * prompt.choices
                headers = limiter.spend(now_ns(), key, prompt.model, tokens)
        except LimitExceeded as refused:
            record.refused = refused.why
            raise
        record.service_tier = name
        return Admitted(name, self._model.service_tiers[name], headers)

    def _tier(self, asked: str | None, number: int) -> str:
        """Return the name of the tier that serves a request. Raises LimitExceeded where it has no capacity."""
        name = _OTHER_NAMES.get(asked or "default", asked or "default")
        name = name if name in self._model.service_tiers else "default"
        tier = self._model.service_tiers[name]
        if Random(f"{self._seed}:tier:{name}:{number}").random() < tier.exhausted:
            after = tier.retry_after_s
            raise LimitExceeded(
                "tier",
                429,
                f"Resource unavailable: the service tier '{name}' has no capacity for this request now. Try again "
                "later, or use another service tier.",
                type="invalid_request_error",
                code="resource_unavailable",
                headers=(("retry-after", f"{after:g}"), ("retry-after-ms", f"{after * 1_000:g}")) if after else (),
            )
        return name

    @contextlib.asynccontextmanager
    async def place(self, admitted: Admitted, record: RequestLog) -> AsyncIterator[bool]:
        """Wait for a place, and hold it; yields whether it had to wait."""
        waited = await self.queue.enter(admitted.tier.rank)
        record.admitted_ns = now_ns()
        try:
            yield waited
        finally:
            self.queue.leave()
