"""What stands between a request that has been read and its place: rate limits, its tier, and the queue."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from fastlane._clock import now_ns
from fastlane.emulator._admission import Admission
from fastlane.emulator._errors import ApiError
from fastlane.emulator._limiter import NOTHING_SPENT, ChargedTokens, Headers, Limiter, LimitExceeded, account_of
from fastlane.emulator._log import OpenRecord
from fastlane.emulator._meters import SlidingWindow
from fastlane.emulator._overrides import Overrides
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator.settings import KeyRateLimits, ProviderModel, ServiceTier

_MINUTE_NS = 60_000_000_000
# A client may send any number of tags and draws.
_MOST_ASKED = 65_536
_COUNTED_BY_DEFAULT = KeyRateLimits()


class _TierState:
    """One tier at work."""

    def __init__(self, tier: ServiceTier) -> None:
        self.tier = tier
        self.inside = 0
        self.queue = Admission(tier.places) if tier.places and tier.beyond == "queue" else None
        self.ramps = [
            (unit, SlidingWindow(limit, _MINUTE_NS))
            for unit, limit in (("tokens", tier.ramp_tokens_per_minute), ("requests", tier.ramp_requests_per_minute))
            if limit is not None
        ]

    @property
    def full(self) -> bool:
        return self.tier.places is not None and self.queue is None and self.inside >= self.tier.places

    def too_fast(self, now: int, tokens: int) -> bool:
        """Count a request that asks for it; returns whether it is beyond the ramp."""
        beyond = False
        for unit, window in self.ramps:
            amount = tokens if unit == "tokens" else 1
            beyond = window.wait_ns(now, amount) != 0 or beyond
            window.take(now, amount)
        return beyond


class AdmittedRequest(NamedTuple):
    """A request that may go on to the queue."""

    tier: ServiceTier
    headers: Headers
    state: _TierState
    spent: ChargedTokens
    limiter: Limiter | None
    account: bytes
    model: str


class Intake:
    """All requests of one provider come in here. All of its state changes happen on one event loop."""

    def __init__(self, model: ProviderModel, *, seed: int) -> None:
        self.admission = Admission(model.concurrency)
        self._seed = seed
        self._asked: dict[tuple[str | None, int], int] = {}
        self._tiers: dict[str, _TierState] = {}
        self._limiters: dict[str | None, Limiter] = {}
        self.change(model)

    def change(self, model: ProviderModel) -> None:
        """Keep to these settings from now on. Limits and tiers that differ begin anew; who is inside stays."""
        self._model = model
        self.admission.set_places(model.concurrency)
        limits: dict[str | None, KeyRateLimits | None] = {None: model.rate_limits}
        limits.update(model.model_rate_limits)
        before = self._limiters
        self._limiters = {
            name: before[name] if name in before and before[name].limits == each else Limiter(each)
            for name, each in limits.items()
            if each is not None
        }
        states: dict[str, _TierState] = {}
        for tier in model.service_tiers:
            old = self._tiers.get(tier.name)
            state = old if old is not None and old.tier == tier else _TierState(tier)
            if old is not None and state is not old:
                state.inside = old.inside
            for name in (tier.name, *tier.aliases):
                states[name] = state
        states["auto"] = states[model.auto_tier]
        self._tiers = states

    def account_of(self, headers: Mapping[str, str]) -> bytes | None:
        """Return whose limits hold for a request with these headers; None where there are no limits."""
        return account_of(headers) if self._limiters else None

    def begin(
        self, prompt: GenerationRequest, record: OpenRecord, *, account: bytes | None, overrides: Overrides
    ) -> AdmittedRequest:
        """Take a request in, or refuse it. Raises ApiError, with the headers of the rate limits where there are any.

        A request without an account, as one of a batch, is not rate limited. `leave` must follow.
        """
        as_if = overrides.limits
        asked = self._asked_tier(prompt, overrides)
        limiter, spent, now = None, NOTHING_SPENT, now_ns()
        if account is not None and self._limiters and as_if != "off":
            limiter = self._limiters.get(prompt.model) or self._limiters.get(None)
        tokens = self._tokens(limiter, prompt, record) if limiter is not None or asked.ramps else 0
        try:
            if limiter is not None:
                wanted = as_if if as_if in ("requests", "tokens", "quota") else None
                spent = limiter.spend(now, account or b"", prompt.model, tokens, as_if=wanted)
                record.limited_tokens = spent.tokens
                record.remaining_requests, record.remaining_tokens = spent.remaining_requests, spent.remaining_tokens
            state = self._served(asked, record, tokens, now, overrides)
            places = self._model.queue_places
            if places is not None and self.admission.full and self.admission.waiting >= places:
                raise self._overload()
            if as_if == "overload":
                raise self._overload()
        except LimitExceeded as refused:
            record.refused = refused.why
            if limiter is not None and spent is not NOTHING_SPENT:
                # It costs no tokens: nothing is generated. That it was a request stays counted.
                limiter.settle(now, account or b"", prompt.model, spent, 0)
                refused.headers = (*spent.headers, *refused.headers)
            raise
        state.inside += 1
        record.service_tier = state.tier.name
        return AdmittedRequest(state.tier, spent.headers, state, spent, limiter, account or b"", prompt.model)

    async def enter(self, entry: AdmittedRequest, record: OpenRecord) -> bool:
        """Wait for a place; returns whether it had to. `give_back` must follow."""
        came = now_ns()
        own = entry.state.queue
        waited = await own.enter(0) if own is not None else False
        try:
            waited = await self.admission.enter(entry.tier.rank) or waited
        except BaseException:
            if own is not None:
                own.leave()
            raise
        record.admitted_ns = now = now_ns()
        record.queue_wait_ns = now - came if waited else 0
        return waited

    def give_back(self, entry: AdmittedRequest) -> None:
        """Give the place to the next."""
        self.admission.leave()
        if entry.state.queue is not None:
            entry.state.queue.leave()

    def leave(self, entry: AdmittedRequest, record: OpenRecord) -> None:
        """Take note that the request is over, however it ended."""
        # By name: the tier's settings may have changed meanwhile.
        state = self._tiers.get(entry.tier.name, entry.state)
        state.inside -= 1
        limiter = entry.limiter
        if limiter is not None and limiter.limits.settled:
            prompt = record.prompt_tokens
            if not limiter.limits.cached_tokens_count:
                prompt -= record.cached_tokens
            limiter.settle(now_ns(), entry.account, entry.model, entry.spent, prompt + record.output_tokens)

    def _asked_tier(self, prompt: GenerationRequest, overrides: Overrides) -> _TierState:
        name = prompt.service_tier or "auto"
        state = self._tiers.get(name)
        if state is not None:
            return state
        if self._model.refuse_unknown_tiers:
            *first, last = (f"'{each}'" for each in sorted(self._tiers))
            raise ApiError(
                400,
                f"Invalid value: '{name}'. Supported values are: {', '.join(first)}, and {last}.",
                param="service_tier",
                code="invalid_value",
            )
        return self._tiers["default"]

    def _tokens(self, limiter: Limiter | None, prompt: GenerationRequest, record: OpenRecord) -> int:
        limits = _COUNTED_BY_DEFAULT if limiter is None else limiter.limits
        return limits.tokens_of(prompt=record.prompt_tokens, output=prompt.output_limit, choices=prompt.choices)

    def _served(self, asked: _TierState, record: OpenRecord, tokens: int, now: int, overrides: Overrides) -> _TierState:
        """Return the tier that serves a request. Raises LimitExceeded where it has no capacity."""
        tier = asked.tier
        too_fast = bool(asked.ramps) and asked.too_fast(now, tokens)
        wished = overrides.served_tier
        if wished is not None:
            if wished not in self._tiers:
                raise ApiError(400, f"there is no tier {wished!r}.", param="x-emulator-served-tier")
            return self._tiers[wished]
        if overrides.limits == "tier":
            raise self._full(tier)
        if tier.exhausted or tier.downgraded:
            refused, lowered = self._drawn(tier, record, overrides)
            if refused:
                raise self._full(tier)
        else:
            lowered = False
        if lowered or too_fast or (asked.full and tier.beyond == "downgrade"):
            asked = self._tiers[tier.downgraded_to]
        if asked.full:
            raise self._full(asked.tier)
        return asked

    def _drawn(self, tier: ServiceTier, record: OpenRecord, overrides: Overrides) -> tuple[bool, bool]:
        if overrides.draw is None:
            drawn_by = f"{record.sequence_number}"
        else:
            key = (overrides.tag, overrides.draw)
            before = self._asked.pop(key, 0)
            self._asked[key] = before + 1
            if len(self._asked) > _MOST_ASKED:
                del self._asked[next(iter(self._asked))]
            drawn_by = f"draw:{overrides.draw}:{before}"
        random = Random(f"{self._seed}:tier:{tier.name}:{drawn_by}")
        return random.random() < tier.exhausted, random.random() < tier.downgraded

    @staticmethod
    def _full(tier: ServiceTier) -> LimitExceeded:
        return LimitExceeded(
            "tier",
            tier.full_status,
            f"Resource unavailable: the service tier '{tier.shown}' has no capacity for this request now. Try again "
            "later, or use another service tier.",
            type="server_error" if tier.full_status >= 500 else "invalid_request_error",
            code=tier.full_code,
            headers=_retry_after(tier.full_retry_after_s),
        )

    def _overload(self) -> LimitExceeded:
        model = self._model
        return LimitExceeded(
            "overload",
            model.overload_status,
            "The server is overloaded with other requests. Try again later.",
            type="requests" if model.overload_status == 429 else "server_error",
            code="rate_limit_exceeded" if model.overload_status == 429 else "server_is_overloaded",
            headers=_retry_after(model.overload_retry_after_s),
        )


def _retry_after(seconds: float | None) -> Headers:
    if seconds is None:
        return ()
    return (("retry-after", f"{seconds:g}"), ("retry-after-ms", f"{seconds * 1_000:g}"))
