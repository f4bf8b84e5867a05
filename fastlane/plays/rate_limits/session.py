"""One call's part in the rate limits: each attempt waits for its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane.engine.effects import Flow
from fastlane.engine.request_queue import QueueSession
from fastlane.engine.session import CallOutcome, SendAttempt
from fastlane.providers.output_facts import limit_in
from fastlane.records.plays import LEVELS, CallUrgency

from .bucket import RequestCost
from .queue import RateLimitQueue, RateLimitTicket, queues
from .section import RateLimitsSection

if TYPE_CHECKING:
    from fastlane.compat.responses import RequestAttempt
    from fastlane.engine.call import Call
    from fastlane.providers.facts import RateLimitFacts

    from .play import RateLimits


class RateLimitsSession(QueueSession):
    """One call's part in `RateLimits`, at one upstream."""

    def __init__(self, play: RateLimits, call: Call) -> None:
        super().__init__(call, play.max_wait_s)
        self._play = play
        self._facts = None if call.facts is None else call.facts.rate_limits
        urgency = call.get(CallUrgency)
        self._level = LEVELS.index("interactive" if urgency is None else urgency.level)
        self._turn: RateLimitTicket | None = None
        self._body_bytes = 0

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Send an attempt when it is its turn."""

        def send_in_turn(attempt: RequestAttempt) -> Flow:
            queue = self._queue()
            turn = self._turn = RateLimitTicket(
                queue, self._level, self._cost(queue, attempt), self._play.stated, max_queued=self._play.max_queued
            )
            try:
                yield from self.wait(turn, attempt)
                reply = yield from send(attempt)
            except BaseException as error:
                self.note_error(attempt, error)
                self.release(failed=True)
                raise
            self.ticket = None
            queue.answered(turn, reply.response.status_code, reply.response.headers)
            if not reply.response.is_success:
                self.note_response(reply.response)
            return reply

        return send_in_turn

    def _queue(self) -> RateLimitQueue:
        call, play = self.call, self._play
        account = call.caller.account
        queue = queues.fetch((call.origin, account.here, call.model), lambda: RateLimitQueue(self._facts))
        if play.redis is not None:
            queue.share(play.redis, f"{call.origin} {call.model} {account.anywhere}")
        return queue

    def _cost(self, queue: RateLimitQueue, attempt: RequestAttempt) -> RequestCost:
        """Return what the provider will count, as far as can be said before the request is sent."""
        body = attempt.options.json_data
        if not isinstance(body, Mapping):
            return RequestCost()
        length = attempt.request.headers.get("content-length", "")
        self._body_bytes = int(length) if length.isdecimal() else 0
        limit = limit_in(body, self.call.endpoint)
        prompt = queue.sizes.input_tokens(self._body_bytes)
        output = queue.sizes.output_tokens(None) if limit is None else float(limit)
        return RequestCost(1.0, float(counted_tokens(self._facts, prompt=prompt, output=output)), prompt, output)

    def close(self, outcome: CallOutcome) -> RateLimitsSection:
        """Take note of what the call has used, and say what was done."""
        self.release(failed=True)
        turn, usage = self._turn, outcome.usage
        if turn is not None and not usage.estimated and None not in (usage.input_tokens, usage.output_tokens):
            used: Any = usage
            queue: Any = turn.queue
            total = used.input_tokens + used.output_tokens
            queue.settle(turn, RequestCost(1.0, total, used.input_tokens, used.output_tokens))
            queue.sizes.learn(
                body_bytes=self._body_bytes,
                input_tokens=used.input_tokens,
                cached_tokens=None,
                output_tokens=used.output_tokens,
            )
        return RateLimitsSection(
            waited_s=self.waited_s,
            waited_for=None if turn is None else turn.waited_for,
            ahead=0 if turn is None else turn.ahead,
            refused=sum(attempt.status_code == 429 for attempt in outcome.attempts),
        )


def counted_tokens(facts: RateLimitFacts | None, *, prompt: float, output: float) -> int:
    """Return the tokens that a provider counts before it answers. It is both if that is not known.

    `output`: the most that the answer may have.
    """
    counted = facts.admission.value if facts is not None and facts.admission is not None else None
    if counted == "larger of both":
        return round(max(prompt, output))
    return round(prompt if counted == "prompt" else 0.0 if counted == "nothing" else prompt + output)
