"""A call at one upstream: its client and options, how long it is waited for, and its part in a race."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .._clock import now_ns
from ..compat.clients import http_client_of, status_error_of
from ..records.attempts import AttemptKind
from ..transport.protocols.exchange import Patience
from .call_state import CallState
from .collector import streamed
from .effects import Racer
from .upstream_failures import UpstreamFailed, Why, failure_of_status

if TYPE_CHECKING:
    from ..knowledge.sightings import Failure
    from ..providers import ProviderFacts
    from .call import Call


class UpstreamAttempts:
    """All attempts of one call at upstreams."""

    __slots__ = ("failed", "made")

    def __init__(self) -> None:
        self.made: list[UpstreamAttempt] = []
        self.failed: UpstreamAttempt | None = None
        """The one whose error the caller gets."""

    def end(self, answered: CallState | None) -> CallState:
        """End all attempts. Returns the state that makes the record of the call.

        `answered`: that of the attempt that brought the answer; None when the call has failed.
        """
        state = (self.failed or self.made[-1]).state if answered is None else answered
        # Attempts of which nothing was sent may have left their state to the next one.
        others = {id(one.state): one.state for one in self.made if one.state is not state}
        attempts = [attempt for other in others.values() for attempt in other.attempts]
        state.other_attempts = tuple(sorted(attempts, key=lambda attempt: attempt.started_ns))
        for other in others.values():
            other.end_part()
        for one in self.made:
            one.forget()
        return state


class UpstreamAttempt:
    """A call at one upstream. Sans-IO."""

    __slots__ = (
        "alternative", "attempts", "body", "changes", "client", "deadline_ns", "facts", "is_late", "is_lost",
        "is_unread", "kind", "may_leave", "must_not_wait", "on_begin", "on_failed",
        "on_first_token", "optional", "options", "patience", "price", "racer", "request", "started_ns", "state",
        "was_claimed", "why",
    )  # fmt: skip

    def __init__(
        self,
        state: CallState,
        options: Any,
        body: Any,
        *,
        attempts: UpstreamAttempts | None = None,
        kind: AttemptKind = "first",
        deadline_ns: int | None = None,
        avoid: str | None = None,
    ) -> None:
        """`avoid`: the connection that it is not to take, by its local address."""
        self.client = state.client
        self.state = state
        """What is known of the call at this upstream."""
        self.options = options
        """The options of the call, before its plays have planned it."""
        self.body = body
        """The body of the call, before its plays have planned it."""
        self.attempts = attempts if attempts is not None else UpstreamAttempts()
        self.attempts.made.append(self)
        if kind == "fallback":
            self.attempts.failed = None
        self.kind: AttemptKind = kind
        self.deadline_ns = deadline_ns
        """When the time of the whole call is up."""
        self.patience = Patience(until_ns=deadline_ns, avoid=avoid)
        self.facts: ProviderFacts | None = None
        """What is known of the provider; None: look it up by the origin."""
        self.price: Any = None
        """What tokens cost there: an object with `input` and `output`, for a million tokens."""
        self.changes: tuple[str, ...] = ()
        """What was changed in the request for this upstream, one sentence each."""
        self.optional: tuple[str, ...] = ()
        """Fields of the body that the upstream may refuse, and that the call can go without."""
        self.may_leave = False
        """Whether another upstream is left, so that an answer without content need not be handed out."""
        self.must_not_wait = False
        """Whether it is sent only if a slot is free."""
        self.alternative: Callable[[], UpstreamAttempt | None] | None = None
        """Makes the attempt that may run beside this one when this one is late; None: one more at the same upstream."""
        self.on_begin: list[Callable[[], None]] = []
        """Called before its first request is sent: it has its slot."""
        self.on_first_token: Callable[..., None] | None = None
        """Called with `answered` once it has its first token, or will have none any more. May be called again."""
        self.on_failed: Callable[[Exception], object] | None = None
        """Called with its error when another attempt goes on."""
        self.racer: Racer | None = None
        self.is_late = False
        self.is_lost = False
        self.is_unread = False
        """Whether the caller reads the bytes of the answer itself."""
        self.request: Any = None
        """The last request that was sent, which openai's errors name."""
        self.was_claimed = False
        """Whether its first content has come, before that of any other attempt."""
        self.why: Why | None = None
        """Why the flow has ended this attempt; None where an error of openai's says it."""
        self.started_ns = 0
        state.upstream = self
        if kind != "first":
            state.next_kind = kind

    def another(
        self,
        *,
        kind: AttemptKind,
        client: Any = None,
        options: Any = None,
        deadline_ns: int | None = None,
        avoid: str | None = None,
    ) -> UpstreamAttempt:
        """Make another attempt of the call, at the upstream of `client`; None: at the same upstream."""
        before, state = self.state, self.state
        client = self.client if client is None else client
        client_state = client._fastlane
        origin = client_state.origin(client.base_url)
        if any(one.started_ns for one in self.attempts.made):
            state = CallState(
                before.pipeline,
                method=before.method,
                endpoint=before.endpoint,
                origin=origin,
                stream=before.stream,
                transport=client_state.transport,
                part_of=before,
            )
        else:
            state.origin, state.transport = origin, client_state.transport
        state.client = client
        return UpstreamAttempt(
            state,
            self.options if options is None else options,
            self.body if options is None else options.json_data,
            attempts=self.attempts,
            kind=kind,
            deadline_ns=self.deadline_ns if deadline_ns is None else deadline_ns,
            avoid=avoid,
        )

    @property
    def http(self) -> Any:
        """The HTTP client."""
        return http_client_of(self.client)

    @property
    def connection(self) -> str | None:
        """The local address of the connection of its last request; None where that is not known."""
        attempts = self.state.attempts
        opening = attempts[-1].phases.opening if attempts else None
        return opening.local_address if opening is not None else None

    @property
    def shows_first_token(self) -> bool:
        """Whether it can be seen when the answer begins: one that comes at once may take as long as it takes."""
        return self.state.stream or self.state.collects

    @property
    def was_sent(self) -> bool:
        """Whether anything of a request has left."""
        return any(one.phases.send_started_ns is not None for one in self.state.attempts)

    def begin(self) -> None:
        """A request is about to be sent."""
        if not self.started_ns:
            acts, self.on_begin = self.on_begin, []
            self.started_ns = now_ns()
            for act in acts:
                act()

    def wait_for_first_token(self, seconds: float) -> None:
        """Give up without a first token within some seconds from now on, where it can be seen and another is left."""
        if self.may_leave and self.shows_first_token:
            until_ns = now_ns() + int(seconds * 1e9)
            self.patience.until_ns = until_ns if self.deadline_ns is None else min(until_ns, self.deadline_ns)

    def join_race(self, racer: Racer) -> None:
        """Take part in a race with another attempt."""
        self.racer = racer
        racer.on_cancel = self._lose

    # What the flow of an attempt asks

    def planned(self, call: Call) -> Call:
        """Take note of a call that the plays have planned. Returns it, streamed to us if a play asks for that."""
        self.is_unread = call.unread
        return call if call.streams_for is None else streamed(call)

    @property
    def until_ns(self) -> int | None:
        """When the async driver has to end the attempt. None where fastlane's transport does so."""
        until_ns = self.patience.until_ns
        if until_ns is None or not self.client._asynchronous:
            return None
        return None if self.state.transport == "fastlane" and is_asyncio() else until_ns

    def raise_failure(self, error: Exception) -> None:
        """Raise UpstreamFailed if the error of a request ends this attempt."""
        failed = self.failure(error)
        try:
            if failed is not None:
                raise failed from None
        finally:
            del failed, error  # whose traceback leads here

    def failure(self, error: Exception) -> UpstreamFailed | None:
        """Return what the error of a request ends this attempt with; None where openai's rules apply to it."""
        time_ns = now_ns()
        if self.deadline_ns is not None and time_ns >= self.deadline_ns:
            return self._failed("deadline", error)
        until_ns = self.patience.until_ns
        if not self.was_claimed and until_ns is not None and time_ns >= until_ns:
            self.is_late = True
            if self.state.attempts:
                self.state.attempts[-1].given_up = "late"
            return self._failed("timeout", error)
        return self._failed("connection", error) if self._gives_way() else None

    def wait_for_whole_answer(self) -> None:
        """The provider refuses to stream: wait for the whole answer."""
        if self.patience.until_ns is not None:
            self.patience.until_ns = self.deadline_ns

    def before_retry(self, response: Any, wait_s: float) -> None:
        """Raise UpstreamFailed where openai's rules want a retry, and another attempt is running, or time is up.

        `response`: the one that was no success; None where none came.
        """
        error = None if response is None else status_error_of(response, self.client)
        why = (None if response is None else failure_of_status(response.status_code)) or "server"
        if self._gives_way():
            raise self._failed(why, error)
        if self.deadline_ns is not None and now_ns() + wait_s * 1e9 >= self.deadline_ns:
            raise self._failed("deadline", error)

    def no_content(self, why: Failure) -> None:
        """Raise UpstreamFailed where a response without content is not to be handed out."""
        if self._gives_way() or self.may_leave:
            raise self._failed(why)

    def claim(self) -> None:
        """The first content has come. Raises Cancelled if that of another attempt came before."""
        if self.racer is not None:
            self.racer.win()
        self.was_claimed = True
        if self.on_first_token is not None:
            self.on_first_token(answered=True)
        # What is read from here on has the call's own timeouts, and an answer that is put together here the deadline.
        self.patience.until_ns = None if self.state.stream or self.is_unread else self.deadline_ns

    def _gives_way(self) -> bool:
        return self.racer is not None and self.racer.give_way()

    def _failed(self, why: Why, error: Exception | None = None) -> UpstreamFailed:
        failed = UpstreamFailed(why, error)
        if failed.request is None:
            failed.request = self.request
        return failed

    def _lose(self) -> None:
        """The content of another attempt came first."""
        self.is_lost = True
        self.ended()
        attempts = self.state.attempts
        if attempts:
            attempts[-1].given_up = "lost"
            if attempts[-1].ended_ns is None:
                attempts[-1].ended_ns = now_ns()

    def failed(self, error: Exception) -> None:
        """The attempt has failed, and another one goes on."""
        self.ended()
        if self.on_failed is not None:
            self.on_failed(error)

    def ended(self) -> None:
        """Nobody waits for its first token any more."""
        act = self.on_first_token
        if act is None:
            return
        if isinstance(sys.exception(), GeneratorExit):  # a task that is garbage-collected
            self.state.pipeline.report_later(partial(act, answered=False))
        else:
            act(answered=False)

    def forget(self) -> None:
        """The call is over: keep nothing of it."""
        self.ended()
        self.options = self.body = self.request = self.racer = None
        self.on_first_token = self.on_failed = self.alternative = None
        self.on_begin = []


def is_asyncio() -> bool:
    """Whether the running event loop is asyncio's. fastlane's transport does not run on trio's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
