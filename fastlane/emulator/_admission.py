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
from fastlane.emulator._request import ApiError, retry_after
from fastlane.emulator.settings import KeyRateLimits, ProviderModel, ServiceTier

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
        """Return how long until so much is there."""
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
        if window == "fixed":
            self._main = Bucket(limit, limit, now, _MINUTE_NS)
        else:
            self._main = Bucket(limit, max(1.0, limit * burst), now)
        self._second = Bucket(limit, limit / 60, now, _SECOND_NS) if window == "quantized" else None

    def room(self, now: int) -> float:
        return self._main.room(now)

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until `amount` may be taken: 0 for now, None for never, because it is too much at once."""
        if amount > self._main.capacity + _CLOSE:
            return None
        wait = self._main.wait_ns(now, amount)
        if self._second is not None:
            wait = max(wait, self._second.wait_ns(now, min(amount, self._second.capacity)))
        return wait

    def take(self, now: int, amount: float) -> None:
        for bucket in filter(None, (self._main, self._second)):
            bucket.take(now, amount)

    def refuse(self, now: int, amount: float) -> None:
        """Count something that was refused: it takes no more than there is."""
        for bucket in filter(None, (self._main, self._second)):
            bucket.take(now, min(amount, max(0.0, bucket.room(now))))

    def reset_ns(self, now: int) -> int:
        """Return how long until all of the limit is there again, if nothing more is taken."""
        return self._main.wait_ns(now, self._main.capacity)


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
        """Count a request of so many tokens; return the headers of its response.

        Raises ApiError where it is over a limit.
        """
        meters = self._of(key, model, now)
        costs = {"requests": 1, "tokens": tokens}
        waits = {unit: meter.wait_ns(now, costs[unit]) for unit, meter in meters.items()}
        if any(wait != 0 for wait in waits.values()):
            # The limit that takes longest is named; its wait is as it is once this request has counted too.
            unit = max(waits, key=lambda each: math.inf if waits[each] is None else float(waits[each] or 0))
            if "requests" in meters:
                meters["requests"].refuse(now, 1)
            raise self._refusal(now, model, meters, unit, costs[unit])
        for unit, meter in meters.items():
            meter.take(now, costs[unit])
        return _headers(now, meters)

    @staticmethod
    def _refusal(now: int, model: str, meters: Mapping[str, Meter], unit: str, cost: int) -> ApiError:
        meter = meters[unit]
        wait = meter.wait_ns(now, cost)
        headers = _headers(now, meters)
        why = f"{unit}/minute"
        about = f"{model} in organization org-emulator on {_UNITS[unit]}: Limit {meter.limit:g}"
        if wait is None:
            why = "too_large"
            message = (
                f"Request too large for {about}, Requested {cost:g}. The input or output tokens must be reduced in "
                "order to run successfully."
            )
        else:
            used = math.ceil(max(0.0, meter.limit - meter.room(now)))
            message = (
                f"Rate limit reached for {about}, Used {used}, Requested {cost:g}. Please try again in "
                f"{duration(wait)}."
            )
            headers += (("retry-after", str(-(-wait // _SECOND_NS))), ("retry-after-ms", str(-(-wait // 1_000_000))))
        return ApiError(429, message, type=unit, code="rate_limit_exceeded", headers=headers, refused=why)


def _headers(now: int, meters: Mapping[str, Meter]) -> Headers:
    """Return OpenAI's headers: https://developers.openai.com/api/docs/guides/rate-limits."""
    headers: list[tuple[str, str]] = []
    for unit, meter in meters.items():
        headers += [
            (f"x-ratelimit-limit-{unit}", str(int(meter.limit + _CLOSE))),
            (f"x-ratelimit-remaining-{unit}", str(int(max(0.0, meter.room(now)) + _CLOSE))),
            (f"x-ratelimit-reset-{unit}", duration(meter.reset_ns(now))),
        ]
    return tuple(headers)


class SlotQueue:
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


class Admitted(NamedTuple):
    tier_name: str
    tier: ServiceTier
    headers: Headers


class Admission:
    """All requests of one provider come in here. All of its state changes happen on one event loop."""

    def __init__(self, model: ProviderModel, *, seed: int) -> None:
        self.queue = SlotQueue(model.concurrency)
        self._seed = seed
        self._limiters: dict[str | None, Limiter] = {}
        self.change(model)

    def change(self, model: ProviderModel) -> None:
        """Apply these settings from now on. Limits that differ begin anew; running requests stay."""
        self._model = model
        self.queue.set_slots(model.concurrency)
        limits: dict[str | None, KeyRateLimits | None] = {None: model.rate_limits}
        limits.update(model.model_rate_limits)
        before = {(name, limiter.limits): limiter for name, limiter in self._limiters.items()}
        self._limiters = {
            name: before.get((name, each)) or Limiter(each) for name, each in limits.items() if each is not None
        }

    def admit(self, prompt: GenerationRequest, record: RequestLog, *, key: str) -> Admitted:
        """Take a request in, or refuse it. Raises ApiError."""
        try:
            name = self._tier(prompt.service_tier, record.sequence_number)
            most = self._model.queue_places
            if most is not None and self.queue.full and self.queue.waiting >= most:
                message = "The server is overloaded with other requests. Try again later."
                raise ApiError(503, message, type="server_error", code="server_is_overloaded", refused="overload")
            limiter = self._limiters.get(prompt.model) or self._limiters.get(None)
            headers: Headers = ()
            if limiter is not None:
                tokens = record.prompt_tokens + (prompt.output_limit or 0) * prompt.choices
                headers = limiter.spend(now_ns(), key, prompt.model, tokens)
        except ApiError as error:
            record.refused = error.refused
            raise
        record.service_tier = name
        return Admitted(name, self._model.service_tiers[name], headers)

    def _tier(self, asked: str | None, number: int) -> str:
        """Return the name of the tier that serves a request. Raises ApiError where it has no capacity."""
        name = "priority" if asked == "fast" else asked or "default"  # OpenAI's `fast` is its `priority`
        name = name if name in self._model.service_tiers else "default"
        tier = self._model.service_tiers[name]
        if Random(f"{self._seed}:tier:{name}:{number}").random() < tier.exhausted:
            raise ApiError(
                429,
                f"Resource unavailable: the service tier '{name}' has no capacity for this request now. Try again "
                "later, or use another service tier.",
                type="invalid_request_error",
                code="resource_unavailable",
                headers=retry_after(tier.retry_after_s),
                refused="tier",
            )
        return name

    @contextlib.asynccontextmanager
    async def slot(self, admitted: Admitted, record: RequestLog) -> AsyncIterator[bool]:
        """Wait for a slot, and hold it; yields whether it had to wait."""
        waited = await self.queue.enter(admitted.tier.rank)
        record.admitted_ns = now_ns()
        try:
            yield waited
        finally:
            self.queue.leave()
