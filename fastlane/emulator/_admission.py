"""What a request passes before the model works on it: its tier, its rate limits and the queue."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator
from random import Random
from typing import NamedTuple

from fastlane._clock import now_ns
from fastlane.emulator._limits import Headers, Limiter, LimitExceeded
from fastlane.emulator._log import OpenRecord
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator.settings import KeyRateLimits, ProviderModel, ServiceTier

# OpenAI's `fast` is its `priority`.
_OTHER_NAMES = {"fast": "priority"}


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

    def admit(self, prompt: GenerationRequest, record: OpenRecord, *, key: str) -> Admitted:
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
    async def place(self, admitted: Admitted, record: OpenRecord) -> AsyncIterator[bool]:
        """Wait for a place, and hold it; yields whether it had to wait."""
        waited = await self.queue.enter(admitted.tier.rank)
        record.admitted_ns = now_ns()
        try:
            yield waited
        finally:
            self.queue.leave()
