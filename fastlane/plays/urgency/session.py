"""One call's urgency: its slot, the request that it shares, and its service tier."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns
from fastlane.compat.clients import http_client_of, status_error_of
from fastlane.compat.retry import openai_error_class
from fastlane.engine.effects import Flow, ReadBody
from fastlane.engine.refused_fields import Upstream, refusals
from fastlane.errors import CallRefusedError
from fastlane.protocol.usage import counted_tokens
from fastlane.providers.output_facts import limit_in
from fastlane.records.urgency import AdmissionRecord

from .admission import gate_of
from .pacing import tokens_counted
from .section import UrgencySection
from .tiers._asked import AskedTier, TierUnavailableError

if TYPE_CHECKING:
    from fastlane.compat.retry import Attempt
    from fastlane.engine.observation import Observation

    from .admission import Gate, Slot
    from .coalescing import Coalescing
    from .tiers._plan import UrgencyPlan


class UrgencySession:
    """One call's part in `Urgency`.

    Each attempt has a slot. It is given back while a retry waits; that of the last one when the response has ended.
    """

    __slots__ = (
        "_attempts_before", "_client", "_failed", "_gate", "_observation", "_options", "_rate_limits", "_slot",
        "_waited_s", "admission", "coalescing", "plan", "tier", "tokens",
    )  # fmt: skip

    def __init__(self, plan: UrgencyPlan, rate_limits: Any, observation: Observation) -> None:
        self.plan = plan
        self.tokens = 0
        """What the call takes of the provider's limit of tokens, estimated."""
        self.admission: AdmissionRecord | None = None
        self.tier: AskedTier | None = None if plan.tier is None else AskedTier(plan.tier)
        """The tier that it asks for; None where nothing is known of tiers."""
        self.coalescing: Coalescing | None = None
        """Its part in single flight; None without that."""
        self._rate_limits = rate_limits
        self._observation = observation
        self._client: Any = None
        self._options: Any = None
        self._gate: Gate | None = None
        self._slot: Slot | None = None
        self._attempts_before = 0
        self._waited_s = 0.0
        self._failed: Callable[[], Exception] | None = None
        """Makes the error of the last attempt, which is to be made again."""
        if plan.single_flight:
            from .coalescing import Coalescing

            self.coalescing = Coalescing()

    # The call

    def around_call(self, client: Any, send: Callable[[Any], Flow]) -> Callable[[Any], Flow]:
        """Ask for the next tier where the one that was asked for is full."""

        def send_at_tiers(options: Any) -> Flow:
            self._client = client
            if len(self._observation.attempts) > self._attempts_before:
                self._release(failed=False)  # the call is sent for another answer
            self._options = options = self._at_asked_tier(options)
            try:
                while True:
                    try:
                        return (yield from send(options))
                    except TierUnavailableError as unavailable:
                        self._options = options = self._at_next_tier(options, unavailable)
            except BaseException:
                self.end()
                raise

        return send_at_tiers

    def around_attempt(self, send: Callable[[Attempt], Flow], is_streamed: bool) -> Callable[[Attempt], Flow]:
        """Send an attempt once it has a slot, or share the request of an identical call."""
        send_with_slot = partial(self._send_with_slot, send)
        if self.coalescing is None:
            return send_with_slot
        return self.coalescing.around_attempt(
            self._client, self._observation, self.plan.urgency, send_with_slot, is_streamed=is_streamed
        )

    # Its slot

    def _send_with_slot(self, send: Callable[[Attempt], Flow], attempt: Attempt) -> Flow:
        try:
            yield from self._acquire(attempt)
            response = yield from send(attempt)
            tier, slot = self.tier, self._slot
            if tier is not None and tier.may_be_full(response.status_code):
                yield ReadBody(response)
                # A full tier says nothing of the other tiers' slots: the call keeps its own for the next tier.
                tier.look(response, attempt.retries_taken)
            if slot is not None:
                slot.answered(response.status_code, response.headers)
            if tier is not None:
                tier.answered(response.status_code, response.headers)
            if not response.is_success:
                self._failed = partial(status_error_of, response, self._client)
                self._release(failed=True)
            elif self._observation.is_over:
                self.end()  # another attempt was faster
        except TierUnavailableError:
            raise
        except BaseException as error:
            wrapper = openai_error_class(error) if isinstance(error, Exception) else None
            if wrapper is not None:
                self._failed = partial(wrapper, request=attempt.request)
            self._release(failed=True)
            raise
        return response

    def _acquire(self, attempt: Attempt) -> Flow:
        """Wait for a slot, where the call needs one and has none. Raises QueueFullError and QueueTimeoutError."""
        slot = self._slot
        if slot is None and (slot := self._new_slot(self._client, self._options, self._max_wait_s(attempt))):
            self._slot = slot
            try:
                if (yield from slot.acquire(http_client_of(self._client))):
                    self._has_slot(slot)
            except CallRefusedError as refused:
                if self._failed is None:
                    raise
                # There is no slot for a retry: the caller gets the error of the attempt.
                raise self._failed() from refused

    def try_acquire(self, client: Any, options: Any) -> bool:
        """Take a slot for the first attempt if one is free now."""
        slot = self._new_slot(client, options, None)
        if slot is None:
            return True
        self._slot = slot
        try:
            slot.start(bool)
        except CallRefusedError:
            return False
        if not slot.is_granted:
            self._release(failed=True)
            return False
        self._has_slot(slot)
        return True

    def _new_slot(self, client: Any, options: Any, max_wait_s: float | None) -> Slot | None:
        plan, observation = self.plan, self._observation
        if plan.admission is None:
            return None
        if self._gate is None:
            account = client._fastlane.accounts.of(client, options)
            origin, model = observation.origin, observation.model
            self._gate = gate_of(origin, account.here, model, plan.admission, self._rate_limits)
            if plan.memory is not None:
                plan.memory.share(self._gate, f"{origin} {model} {account.anywhere}")
        self.tokens = self._tokens_of(options)
        self._attempts_before = len(observation.attempts)
        return self._gate.slot(plan.urgency, plan.admission, tokens=self.tokens, max_wait_s=max_wait_s)

    def _tokens_of(self, options: Any) -> int:
        """What the provider will count for the call, as far as can be said before it is sent."""
        memory, body, observation = self.plan.memory, options.json_data, self._observation
        if memory is None or not isinstance(body, Mapping):
            return 0
        sizes = memory.sizes(observation.origin, observation.model)
        limit = limit_in(body, observation.endpoint)
        written = observation.body(options)
        output = sizes.output_tokens(None) if limit is None else float(limit)
        prompt = sizes.input_tokens(0 if written is None else len(written))
        return tokens_counted(self._rate_limits, prompt=prompt, output=output)

    def _max_wait_s(self, attempt: Attempt) -> float | None:
        """Seconds that it may wait: what the play allows, else the call's own timeout; no longer than its deadline."""
        most_s: Any = self.plan.max_wait_s
        if most_s is None:
            most_s = (attempt.request.extensions.get("timeout") or {}).get("read")
        if not isinstance(most_s, int | float) or most_s > threading.TIMEOUT_MAX:
            most_s = None  # for ever, as no clock counts that far
        left_s = None if most_s is None else max(0.0, most_s - self._waited_s)
        upstream = self._observation.upstream
        if upstream is not None and upstream.deadline_ns is not None:
            deadline_s = max(0.0, (upstream.deadline_ns - now_ns()) / 1e9)
            left_s = deadline_s if left_s is None else min(left_s, deadline_s)
        return left_s

    def _has_slot(self, slot: Slot) -> None:
        record = slot.record
        self._waited_s += record.waited_s
        self.admission = AdmissionRecord(
            waited_s=self._waited_s,
            waited_for=record.waited_for,
            ahead=record.ahead,
            concurrency=record.concurrency,
        )

    def _release(self, *, failed: bool) -> None:
        """Give the slot back."""
        slot = self._slot
        if slot is None:
            return
        tokens, failed = self._tokens_taken(failed=failed)
        release = partial(slot.release, tokens=tokens, failed=failed)
        if isinstance(sys.exception(), GeneratorExit):
            # In a garbage collection: this thread may hold the lock of the gate.
            self._observation.pipeline.report_later(release)
        else:
            release()
        self._slot = None  # not before: an interrupt may come amid the release, and then it is done again

    def _tokens_taken(self, *, failed: bool) -> tuple[int | None, bool]:
        """What the attempts from this slot took of the provider's limit of tokens, and whether they failed."""
        observation = self._observation
        sent = [one for one in observation.attempts[self._attempts_before :] if one.kind != "shared"]
        if not sent:
            return 0, True  # it tells nothing of the provider
        usage = observation.answer.usage
        if failed or usage is None:
            return None, failed
        read, generated = counted_tokens(usage)
        if read is None or generated is None:
            return None, failed
        memory = self.plan.memory
        if memory is not None:
            memory.sizes(observation.origin, observation.model).learn(
                body_bytes=sent[-1].request_body_bytes or 0,
                input_tokens=read,
                cached_tokens=None,
                output_tokens=generated,
            )
        return read + generated, failed

    def end(self) -> None:
        """The call and its stream have ended."""
        if self.coalescing is not None:
            self.coalescing.end(self._observation.pipeline)
        self._release(failed=self._observation.outcome in ("failed", "cancelled"))

    # Its tier

    def _at_asked_tier(self, options: Any) -> Any:
        """The options of its next attempts, at the tier that is asked for by then."""
        tier, plan, observation = self.tier, self.plan.tier, self._observation
        if tier is None or plan is None:
            return options
        if plan.refusal in refusals.at(self._client, options, observation.origin, observation.model):
            tier.asked = None  # since the call was planned
        return tier.prepared(self._client, options)

    def _at_next_tier(self, options: Any, unavailable: TierUnavailableError) -> Any:
        """The options of the call at its next tier, for which it keeps its slot."""
        plan, observation, client = self.plan.tier, self._observation, self._client
        assert self.tier is not None
        assert plan is not None
        if not self.tier.full:
            # It is not for this key.
            self.tier.asked = None
            account = client._fastlane.accounts.of(client, options).here
            observation.doubt((plan.refusal,), Upstream(observation.origin, observation.model, account))
        return self.tier.fallen(client, observation, options, unavailable)

    def took_back(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        """Take note that the call goes on without these fields; return them, the tier's with the tier in it."""
        tier, plan = self.tier, self.plan.tier
        if tier is None or plan is None or plan.added is None or plan.field not in fields:
            return fields
        tier.asked = None
        return tuple([plan.refusal if name == plan.field else name for name in fields])

    # What the record says

    def record(self, served_tier: str | None) -> UrgencySection:
        """The part of the record on the call's urgency."""
        tier, coalescing = self.tier, self.coalescing
        return UrgencySection(
            urgency=self.plan.urgency,
            asked_tier=None if tier is None else tier.asked,
            served_tier=served_tier if tier is None else tier.served(served_tier),
            downgraded=self.is_downgraded(served_tier),
            full_tiers=() if tier is None else tier.full,
            admission=self.admission,
            shared_with=None if coalescing is None else coalescing.shared_with,
            sharers=0 if coalescing is None else coalescing.sharers,
            why_not_shared=None if coalescing is None else coalescing.why_not,
        )

    def is_downgraded(self, served_tier: str | None) -> bool:
        """Whether it was served by a slower tier than the one that it asked for."""
        return self.tier is not None and self.tier.is_downgraded(served_tier)

    def tell_downgrade(self, *, quietly: bool = False) -> None:
        """Tell the application, if it was and the application wants to know; errors are logged once."""
        tell, observation = self.plan.on_downgrade, self._observation
        if tell is not None and self.is_downgraded(observation.answer.service_tier):
            try:
                tell(observation.record())
            except Exception as error:  # noqa: BLE001 - a callback must not break a call
                observation.pipeline.went_wrong("Urgency", "on_downgrade", error, quietly=quietly)
