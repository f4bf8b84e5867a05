"""How one call, or one of its ways, comes to its place and gives it back, and which tier it got."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.compat.clients import http_client_of
from fastlane.engine.closing import until_closed
from fastlane.engine.refused_fields import TierFull, Upstream, refusals
from fastlane.protocol.usage import counted_tokens
from fastlane.providers.output_facts import limit_in
from fastlane.records.urgency import AdmissionRecord, UrgencyRecord

from ..admission import Recall, Recalled, gate_of
from ..pacing import tokens_counted
from ..section import UrgencySection
from ._asked import AskedTier

if TYPE_CHECKING:
    from fastlane.engine.observation import Observation

    from ..admission import Gate, Permit
    from ..single_flight import Sharing
    from ._plan import UrgencyPlan


class Urgent:
    """The driver of one call's urgency. The clients and the observation tell it what happens.

    A place is taken before the first attempt, given back while a retry waits, and when the call is over.
    """

    __slots__ = (
        "_attempts_before", "_gate", "_is_ready", "_permit", "_rate_limits", "_unjudged", "_waited_s", "admission",
        "plan", "sharing", "tier", "tokens",
    )  # fmt: skip

    def __init__(self, plan: UrgencyPlan, rate_limits: Any) -> None:
        self.plan = plan
        self.tokens = 0
        """What the call takes of the provider's limit of tokens, estimated."""
        self.admission: AdmissionRecord | None = None
        self._gate: Gate | None = None
        self._rate_limits = rate_limits
        self._permit: Permit | None = None
        self._attempts_before = 0
        self._is_ready = False
        self._unjudged: tuple[int, Mapping[str, str]] | None = None
        self._waited_s = 0.0
        self.tier: AskedTier | None = None if plan.tier is None else AskedTier(plan.tier)
        """The tier that it asks for; None where nothing is known of tiers."""
        self.sharing: Sharing | None = None
        """Its part in single flight; None without that."""
        if plan.single_flight:
            from ..single_flight import Sharing

            self.sharing = Sharing()

    # Its place

    def enter(self, client: Any, observation: Observation, options: Any) -> None:
        """Wait for a place. Raises QueueFullError and QueueTimeoutError."""
        gate = self._gate_for(client, observation, options)
        if gate is not None:
            plan, most_wait_s = self.plan, self._most_wait_s(client, observation, options)
            try:
                with self._recalled_by(client) as recall:
                    permit = gate.enter(
                        plan.urgency, plan.admission, tokens=self.tokens, most_wait_s=most_wait_s, recall=recall
                    )
            except Recalled:
                self._begins(observation, 0)  # what called it back is found out when it is sent
            else:
                self._entered(permit, observation)

    async def async_enter(self, client: Any, observation: Observation, options: Any) -> None:
        """See `enter`."""
        gate = self._gate_for(client, observation, options)
        if gate is not None:
            plan, most_wait_s = self.plan, self._most_wait_s(client, observation, options)
            try:
                with self._recalled_by(client) as recall:
                    permit = await gate.async_enter(
                        plan.urgency, plan.admission, tokens=self.tokens, most_wait_s=most_wait_s, recall=recall
                    )
            except Recalled:
                self._begins(observation, 0)  # what called it back is found out when it is sent
            else:
                self._entered(permit, observation)

    @contextmanager
    def _recalled_by(self, client: Any) -> Iterator[Recall]:
        """What calls it back while it waits: the end of its client, and another call that has sent the same request."""
        recall = Recall()
        with until_closed(http_client_of(client), recall):
            if self.sharing is None:
                yield recall
            else:
                with self.sharing.until_sent(recall):
                    yield recall

    def try_enter(self, client: Any, observation: Observation, options: Any) -> bool:
        """Whether there was a place without waiting: the call begins with it."""
        gate = self._gate_for(client, observation, options)
        if gate is None:
            return True
        permit = gate.try_enter(self.plan.urgency, self.plan.admission, tokens=self.tokens)
        if permit is None:
            return False
        self._entered(permit, observation)
        self._is_ready = True
        return True

    def _gate_for(self, client: Any, observation: Observation, options: Any) -> Gate | None:
        """The gate to be passed; None where there is none, or it has been passed already."""
        if self._is_ready:
            self._is_ready = False
            self._begins(observation, 0)
            return None
        plan, sharing = self.plan, self.sharing
        if sharing is not None and not sharing.needs_place(client, observation, options, plan.urgency):
            return None
        if plan.admission is None:
            self._begins(observation, 0)
            return None
        self.step_back(observation)
        if self._gate is None:
            account = client._fastlane.accounts.of(client, options)
            origin, model = observation.origin, observation.model
            self._gate = gate_of(origin, account.here, model, plan.admission, self._rate_limits)
            if plan.memory is not None:
                plan.memory.share(self._gate, f"{origin} {model} {account.anywhere}")
        self.tokens = self._tokens_of(observation, options)
        return self._gate

    def _tokens_of(self, observation: Observation, options: Any) -> int:
        """What the provider will count for the call, as far as can be said before it is sent."""
        memory, body = self.plan.memory, options.json_data
        if memory is None or not isinstance(body, Mapping):
            return 0
        sizes = memory.sizes(observation.origin, observation.model)
        limit = limit_in(body, observation.endpoint)
        written = observation.body(options)
        output = sizes.output_tokens(None) if limit is None else float(limit)
        prompt = sizes.input_tokens(0 if written is None else len(written))
        return tokens_counted(self._rate_limits, prompt=prompt, output=output)

    def _most_wait_s(self, client: Any, observation: Observation, options: Any) -> float | None:
        """Seconds that it may wait: what the play allows, else the call's own time-out; no longer than its deadline."""
        most_s: Any = self.plan.max_wait_s
        if most_s is None:
            most_s = options.timeout
            if isinstance(most_s, openai.NotGiven):
                most_s = client.timeout
            most_s = getattr(most_s, "read", most_s)
        if not isinstance(most_s, int | float) or most_s > threading.TIMEOUT_MAX:
            most_s = None  # for ever, as no clock counts that far
        left_s = None if most_s is None else max(0.0, most_s - self._waited_s)
        leg = observation.leg
        if leg is not None and leg.deadline_ns is not None:
            deadline_s = max(0.0, (leg.deadline_ns - now_ns()) / 1e9)
            left_s = deadline_s if left_s is None else min(left_s, deadline_s)
        return left_s

    def _entered(self, permit: Permit, observation: Observation) -> None:
        self._permit = permit
        self._attempts_before = len(observation.attempts)
        record = permit.record
        self._waited_s += record.waited_s
        self.admission = record if record.waited_s == self._waited_s else _together(record, self._waited_s)
        if observation.is_over:
            # Somebody has ended the call meanwhile: nobody else will give this place back.
            self.over(observation)
        self._begins(observation, int(record.waited_s * 1e9))

    @staticmethod
    def _begins(observation: Observation, waited_ns: int) -> None:
        leg = observation.leg
        if leg is not None:
            leg.has_place(waited_ns)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer has come, whatever it says."""
        tier = self.tier
        if tier is not None:
            tier.answered(status, headers)
            if status >= 400 and tier.may_be_full(status):
                # A full tier says nothing of the other tiers' places: its body has to be looked at first.
                self._unjudged = status, headers
                return
        permit = self._permit
        if permit is not None:
            permit.answered(status, headers)

    # Its tier

    def prepared(self, client: Any, observation: Observation, options: Any) -> Any:
        """The options of its next attempts, at the tier that is asked for by then."""
        tier, plan = self.tier, self.plan.tier
        if tier is None or plan is None:
            return options
        if plan.refusal in refusals.at(client, options, observation.origin, observation.model):
            tier.asked = None  # since the call was planned
        return tier.prepared(client, options)

    def may_be_full(self, status: int) -> bool:
        """Whether an answer's body has to be looked at: it may say that the tier is full."""
        return status >= 400 and self.tier is not None and self.tier.may_be_full(status)

    def look(self, observation: Observation, response: Any) -> None:
        """Look at the answer, read. Raises TierFull."""
        assert self.tier is not None
        unjudged, self._unjudged = self._unjudged, None
        self.tier.look(response)
        if unjudged is not None and self._permit is not None:
            self._permit.answered(*unjudged)

    def fallen(self, client: Any, observation: Observation, options: Any, full: TierFull) -> Any:
        """The options of the call at its next tier, for which it keeps its place."""
        plan = self.plan.tier
        assert self.tier is not None
        assert plan is not None
        self._is_ready = self._permit is not None and self.sharing is None
        if not self.tier.full:
            # It is not for this key.
            self.tier.asked = None
            account = client._fastlane.accounts.of(client, options).here
            observation.doubt((plan.refusal,), Upstream(observation.origin, observation.model, account))
        return self.tier.fallen(client, observation, options, full)

    def took_back(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        """Take note that the call goes on without these fields; return them, the tier's with the tier in it."""
        tier, plan = self.tier, self.plan.tier
        if tier is None or plan is None or plan.added is None or plan.field not in fields:
            return fields
        tier.asked = None
        return tuple([plan.refusal if name == plan.field else name for name in fields])

    def step_back(self, observation: Observation, *, failed: bool = False, quietly: bool = False) -> None:
        """The attempt is over, and another one may follow: give the place back until then."""
        permit, self._permit = self._permit, None
        if permit is not None and not (self.sharing is not None and not quietly and self.sharing.hands_over(permit)):
            self._leave(permit, observation, failed=failed, quietly=quietly)

    def over(self, observation: Observation, *, quietly: bool = False) -> None:
        """The call is over; `quietly`: told by a finaliser."""
        permit, self._permit = self._permit, None
        if permit is not None and not (self.sharing is not None and not quietly and self.sharing.hands_over(permit)):
            failed = observation.outcome in ("failed", "cancelled")
            self._leave(permit, observation, failed=failed, quietly=quietly)
        self._gate = None

    def _leave(self, permit: Permit, observation: Observation, *, failed: bool, quietly: bool) -> None:
        tokens = None
        answer = observation.answer
        sent = [one for one in observation.attempts[self._attempts_before :] if one.kind != "shared"]
        if not sent:
            # From this place nothing was sent: it tells nothing of the provider, and takes nothing of its limits.
            tokens, failed = 0, True
        elif not failed and answer.usage is not None:
            read, generated = counted_tokens(answer.usage)
            if read is not None and generated is not None:
                tokens = read + generated
                if not quietly:
                    self._learn(observation, sent[-1].request_body_bytes, read, generated)
        permit.leave(tokens=tokens, failed=failed, quietly=quietly)

    def _learn(self, observation: Observation, body_bytes: int | None, read: int, generated: int) -> None:
        memory = self.plan.memory
        if memory is not None:
            memory.sizes(observation.origin, observation.model).learn(
                body_bytes=body_bytes or 0,
                input_tokens=read,
                cached_tokens=None,
                output_tokens=generated,
            )

    # What the record says

    def record(self, served_tier: str | None) -> UrgencyRecord:
        """The part of the record on the call's urgency."""
        tier = self.tier
        return UrgencySection(
            urgency=self.plan.urgency,
            asked_tier=None if tier is None else tier.asked,
            served_tier=served_tier if tier is None else tier.served(served_tier),
            downgraded=self.is_downgraded(served_tier),
            full_tiers=() if tier is None else tier.full,
            admission=self.admission,
            shared_with=None if self.sharing is None else self.sharing.shared_with,
            sharers=0 if self.sharing is None else self.sharing.sharers,
            why_not_shared=None if self.sharing is None else self.sharing.why_alone,
        )

    def is_downgraded(self, served_tier: str | None) -> bool:
        """Whether it was served by a slower tier than the one that it asked for."""
        return self.tier is not None and self.tier.is_downgraded(served_tier)

    def tell_downgrade(self, observation: Observation, *, quietly: bool = False) -> None:
        """Tell the application, if it was and the application wants to know; errors are logged once."""
        tell = self.plan.on_downgrade
        if tell is not None and self.is_downgraded(observation.answer.service_tier):
            try:
                tell(observation.record())
            except Exception as error:  # noqa: BLE001 - a callback must not break a call
                observation.pipeline.went_wrong("Urgency", "on_downgrade", error, quietly=quietly)


def _together(record: AdmissionRecord, waited_s: float) -> AdmissionRecord:
    """The record of the last attempt's place, with the wait of all of them."""
    return AdmissionRecord(
        waited_s=waited_s, waited_for=record.waited_for, ahead=record.ahead, concurrency=record.concurrency
    )
