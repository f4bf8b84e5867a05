"""The emulated provider's state: its model, its limits, its queue, its prompt cache and its luck."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from fastlane._clock import now_ns
from fastlane.emulator import _tokens
from fastlane.emulator._admission import AdmissionQueue, Headers, Limiter
from fastlane.emulator._faults import Fault, FaultRules
from fastlane.emulator._log import RequestLog
from fastlane.emulator._prefix_cache import ROUTED_CHARACTERS, PrefixCache
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._reply import StoredResponse
from fastlane.emulator._request import ApiError, Overrides, retry_after
from fastlane.emulator.settings import KeyRateLimits, ProviderModel, ServiceTier

_NS = 1_000_000_000
# OpenAI documents prefixes from 1,024 tokens in steps of 128.
_CACHE_MINIMUM_TOKENS = 1_024
_CACHE_BLOCK_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """The draws of one request: equal for the same seed, sequence number and prompt."""

    prefill: float
    pace: float
    late: bool
    jitter: Random
    random: Random


class Provider:
    """One provider. All of its state changes happen on one event loop."""

    def __init__(self, model: ProviderModel, *, seed: int = 0, faults: Iterable[Fault] = ()) -> None:
        self.model = self._first_model = model
        self.seed = seed
        self.records: list[RequestLog] = []
        """Of all requests, in the order in which their headers came in."""
        self.next_number = count().__next__
        """Returns the next request's sequence number, from 0; `reset` does not start it over."""
        self._first_faults = tuple(faults)
        self.faults = FaultRules(self._first_faults)
        self.fault_random = Random(f"{seed}:faults")
        self.answers: deque[str] = deque()
        """What the next requests are answered, in this order; then answers are generated again."""
        self.stored: dict[str, StoredResponse] = {}
        """Responses that are or were generated in the background, by id."""
        self._attempts: Counter[tuple[str | None, int | None]] = Counter()
        self._begin()

    def _begin(self) -> None:
        self.queue = AdmissionQueue(self.model.concurrency)
        self._limiters: dict[str | None, Limiter] = {}
        self._set_limits()
        self.cache = self._new_cache()

    def _set_limits(self) -> None:
        """Limits that differ begin anew."""
        before = {(name, limiter.limits): limiter for name, limiter in self._limiters.items()}
        limits: dict[str | None, KeyRateLimits | None] = {None: self.model.rate_limits}
        limits.update(self.model.model_rate_limits)
        self._limiters = {
            name: before.get((name, each)) or Limiter(each) for name, each in limits.items() if each is not None
        }

    def _new_cache(self) -> PrefixCache:
        return PrefixCache(
            block_tokens=_CACHE_BLOCK_TOKENS,
            minimum_tokens=_CACHE_MINIMUM_TOKENS,
            expiry_ns=round(self.model.cache_expiry_s * _NS),
            machines=self.model.cache_machines,
            per_minute=self.model.cache_requests_per_key_per_minute,
        )

    def change(self, settings: Mapping[str, Any]) -> None:
        """Serve with other settings from now on; other settings of the cache empty it. Raises ConfigurationError."""
        self.model = self.model.changed(settings)
        self.queue.set_slots(self.model.concurrency)
        self._set_limits()
        if any(name.startswith("cache_") for name in settings):
            self.cache = self._new_cache()

    def reset(self) -> None:
        """Return to the settings and faults of the start, and forget records, prompts and scripted answers."""
        self.model = self._first_model
        self.faults = FaultRules(self._first_faults)
        # Requests that are inside keep the queue that they are in.
        self._begin()
        self._attempts.clear()
        self.records.clear()
        self.answers.clear()
        self.stored.clear()

    def luck(self, number: int, prompt: GenerationRequest, overrides: Overrides) -> Luck:
        """Draw for one request. Requests with equal `x-emulator-draw` draw alike, whatever they ask."""
        if overrides.draw is None:
            drawn_by = f"time:{number}:{_tokens.fingerprint(prompt.text)}"
        else:
            drawn_by = f"draw:{overrides.draw}"
        random = Random(f"{self.seed}:{drawn_by}")
        prefill, pace = random.random(), random.random()
        # Drawn apart, so that all else is the same with and without late ones. A request for a time gets it.
        share = self.model.late_share if overrides.prefill_ms is None else 0.0
        late = False
        if share > 0:
            # A second attempt with a tag and a draw has another chance.
            attempt = (overrides.tag, overrides.draw)
            before = 0 if overrides.draw is None else self._attempts[attempt]
            self._attempts[attempt] += 1
            late = Random(f"{self.seed}:late:{before}:{drawn_by}").random() < share
        return Luck(prefill=prefill, pace=pace, late=late, jitter=Random(random.random()), random=random)

    def admit(self, prompt: GenerationRequest, record: RequestLog, *, key: str) -> Headers:
        """Take a request in: set its service tier, and return the headers of its response. Raises ApiError."""
        try:
            name = self._tier_name(prompt.service_tier, record.sequence_number)
            most = self.model.queue_places
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
        return headers

    def _tier_name(self, asked: str | None, number: int) -> str:
        name = "priority" if asked == "fast" else asked or "default"  # OpenAI's `fast` is its `priority`
        name = name if name in self.model.service_tiers else "default"
        tier = self.model.service_tiers[name]
        if Random(f"{self.seed}:tier:{name}:{number}").random() < tier.exhausted:
            raise ApiError(
                429,
                f"Resource unavailable: the service tier '{name}' has no capacity for this request now. Try again "
                "later, or use another service tier.",
                code="resource_unavailable",
                headers=retry_after(tier.retry_after_s),
                refused="tier",
            )
        return name

    @contextlib.asynccontextmanager
    async def slot(self, tier: ServiceTier, record: RequestLog) -> AsyncIterator[bool]:
        """Wait for a slot, and hold it; yields whether it had to wait."""
        queue = self.queue
        waited = await queue.enter(tier.rank)
        record.admitted_ns = now_ns()
        try:
            yield waited
        finally:
            queue.leave()

    def check_model(self, name: str) -> None:
        if self.model.models and name not in self.model.models:
            message = f"The model `{name}` does not exist or you do not have access to it."
            raise ApiError(404, message, code="model_not_found")

    def check(self, prompt: GenerationRequest, prompt_tokens: int) -> None:
        self.check_model(prompt.model)
        most = self.model.context_window_tokens
        if prompt_tokens > most:
            raise ApiError(
                400,
                f"This model's maximum context length is {most} tokens. However, your messages resulted in "
                f"{prompt_tokens} tokens. Please reduce the length of the messages.",
                param="messages",
                code="context_length_exceeded",
            )

    def recall(self, prompt: GenerationRequest, luck: Luck, record: RequestLog) -> int:
        if not self.model.prompt_cache:
            return 0
        digests = _tokens.prefix_digests(prompt.text, block_tokens=_CACHE_BLOCK_TOKENS)
        now = now_ns()
        machine = self.cache.machine(prompt.cache_key, luck.random, prefix=prompt.text[:ROUTED_CHARACTERS], now=now)
        lane = (prompt.model, record.service_tier, *prompt.cache_lane)
        record.cache_machine = machine
        record.cached_tokens = self.cache.cached_tokens(machine, lane, digests, now)
        self.cache.remember(machine, lane, digests, now)
        kept = len(digests) * _CACHE_BLOCK_TOKENS
        return kept - record.cached_tokens if kept >= _CACHE_MINIMUM_TOKENS else 0

    def prefill_ns(self, *, uncached_tokens: int, luck: Luck, tier: ServiceTier, overrides: Overrides) -> int:
        if overrides.prefill_ms is not None:
            return round(overrides.prefill_ms * 1e6)
        seconds = self.model.prefill_s(uncached_tokens=uncached_tokens, luck=luck.prefill, tier=tier)
        return round(seconds * (self.model.late_factor if luck.late else 1) * _NS)

    def gaps_ns(self, *, luck: Luck, tier: ServiceTier, overrides: Overrides) -> Iterator[int]:
        mean, jitter = self.model.mean_gap_s(luck=luck.pace, tier=tier) * _NS, self.model.inter_token_jitter
        if overrides.token_ms is not None:
            mean, jitter = overrides.token_ms * 1e6, 0.0
        while True:
            yield round(mean * (1 + jitter * (2 * luck.jitter.random() - 1))) if jitter else round(mean)
