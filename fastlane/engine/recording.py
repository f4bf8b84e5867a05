"""Make the record of a call that is over out of what was observed of it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ..records.record import CallRecord, Outcome
from ..records.timeline import Timeline
from ..records.usage import Usage

if TYPE_CHECKING:
    from ..plays.prompt_cache.prefixes._account import PromptAccount
    from ..records.prompt import PromptCacheRecord
    from ..records.section import RecordSection
    from .attempt_stamps import AttemptStamps
    from .observation import Observation


def outcome_of(call: Observation) -> Outcome:
    """How a call that is over has ended."""
    if call.outcome is not None:
        return call.outcome
    if not call.streaming:
        return "completed"
    if call.finishes and (call.decoded or call.answer.events):
        if call.answer.finished:
            return "completed"
        return "truncated" if call.is_done or call.exhausted else "closed"
    return "completed" if call.is_done or call.exhausted else "closed"


def settled(call: Observation, prompt: PromptAccount) -> PromptCacheRecord | None:
    """What came of what was expected of the provider's prompt cache."""
    status = call.attempts[-1].status_code if call.attempts else None
    try:
        return prompt.settle(
            Usage() if call.usage.estimated else call.usage,
            answered=status is not None and status < 300,
            now_ns=call.ended_ns,
            provider_reason=call.answer.cache_reason,
        )
    except Exception as error:  # noqa: BLE001 - a play must not break a call
        call.pipeline.went_wrong("PromptCache", "settle", error)
        return None


def sections_of(call: Observation) -> tuple[RecordSection, ...]:
    """What the plays say of a call that is over."""
    sections: list[RecordSection] = []
    if call.sending is not None:
        sections.append(call.sending.record(call.attempts[-1] if call.attempts else None))
    if call.prompt_cache is not None:
        sections.append(call.prompt_cache)
    sections += call.sections
    if call.output is not None:
        sections.append(call.output)
    if call.urgent is not None:
        sections.append(call.urgent.record(call.answer.service_tier))
    return tuple(sections)


def record_of(call: Observation, outcome: Outcome | None = None) -> CallRecord:
    """The record of a call that is over, or that would end with `outcome`."""
    last = call.attempts[-1] if call.attempts else None
    outcome = outcome or call.outcome or "failed"
    answer_ended_ns = None
    whole = outcome in ("completed", "truncated") and (not call.streaming or call.exhausted)
    if last is not None and (whole or call.is_done):
        answer_ended_ns = last.answer_ended_ns(call.ended_ns)
    if answer_ended_ns is None:
        if call.is_done or outcome == "stopped":
            answer_ended_ns = call.answer.arrived_ns or None
        elif whole and last is not None:
            answer_ended_ns = last.ended_ns
    # Those of other ways went on beside these.
    attempts = [attempt.record(attempt.ended_ns or call.ended_ns) for attempt in call.before]
    attempts += [attempt.record(following.started_ns) for attempt, following in pairwise(call.attempts)]
    if last is not None:
        attempts.append(last.record(call.ended_ns))
    is_checked = call.output is not None and call.output.verdict is not None
    return CallRecord(
        call_id=call.call_id,
        method=call.method,
        endpoint=call.endpoint,
        origin=call.origin,
        model=call.model,
        stream=call.stream,
        outcome=outcome,
        timeline=Timeline(
            started_wall_ns=call.started_wall_ns,
            started_ns=call.started_ns,
            ended_ns=call.ended_ns,
            answer_ended_ns=answer_ended_ns,
            first_event_ns=call.answer.first_event_ns,
            first_token_ns=call.answer.first_token_ns,
            first_token_kind=call.answer.first_token_kind,
            first_content_token_ns=call.answer.first_content_ns,
            token_ns=call.answer.token_ns,
            validate_started_ns=call.validate_started_ns if is_checked else None,
            validate_ended_ns=call.validate_ended_ns if is_checked else None,
        ),
        attempts=tuple(attempts),
        usage=call.usage,
        response_model=call.answer.model,
        finish_reason=call.answer.finish_reason,
        error=call.error,
        status_code=last.status_code if last is not None else None,
        request_id=call.answer.request_id,
        response_id=call.answer.response_id,
        service_tier=call.answer.service_tier,
        events=call.answer.events,
        plays=call.pipeline.fingerprint,
        changes=call.changes,
        sections=sections_of(call),
        provider_times=call.provider_times,
        user_actions=call.action_path,
        experiment=call.experiment.record if call.experiment is not None else None,
        transport=_carrier(call, last),
    )


def _carrier(call: Observation, last: AttemptStamps | None) -> str:
    # The transport of the shared connections hands on to the library's own what it cannot carry.
    return "stock" if call.transport == "fastlane" and last is not None and last.fell_back else call.transport
