"""A call at one upstream: its client and options, its deadlines, and its part in a race."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._clock import now_ns
from ..compat.clients import http_client_of, status_error_of
from ..compat.context import is_asyncio
from ..compat.responses import openai_error_class
from ..records.attempts import AttemptKind
from ..transport.protocols.exchange import Patience

# With the play that makes attempts: a fork amid an import by a call would leave its lock held in the child.
from . import first_content, race  # noqa: F401
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
        """The attempt whose error the caller gets."""

    def end(self, answered: CallState | None) -> CallState:
        """End all attempts. Returns the state that makes the record of the call.

        `answered`: the state of the attempt that gave the answer; None if the call has failed.
        """
        state = (self.failed or self.made[-1]).state if answered is None else answered
        # An attempt that was not sent shares its state with the next one.
        others = {id(one.state): one.state for one in self.made if one.state is not state}
        attempts = [attempt for other in others.values() for attempt in other.attempts]
        state.other_attempts = tuple(sorted(attempts, key=lambda attempt: attempt.started_ns))
        for other in others.values():
            other.end_part()
        for one in self.made:
            one.forget()
        return state


class UpstreamAttempt:
    """A call at one upstream. Does no I/O. The flow of the attempt uses it; `Racer.cancel` may run in any thread."""

    __slots__ = (
        "attempts", "body", "changes", "client", "deadline_ns", "facts", "is_late", "is_lost",
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
        """`avoid`: the local address of the connection not to use. `deadline_ns`: in monotonic nanoseconds."""
        self.client = state.client
        self.state = state
        """The state of the call at this upstream."""
        self.options = options
        """The options of the call before planning."""
        self.body = body
        """The body of the call before planning."""
        self.attempts = attempts if attempts is not None else UpstreamAttempts()
        self.attempts.made.append(self)
        if kind == "fallback":
            self.attempts.failed = None
        self.kind: AttemptKind = kind
        self.deadline_ns = deadline_ns
        """The deadline of the whole call: monotonic nanoseconds; None without one."""
        self.patience = Patience(until_ns=deadline_ns, avoid=avoid)
        self.facts: ProviderFacts | None = None
        """The facts about the provider; None: look them up by the origin."""
        self.price: Any = None
        """The price of tokens: an object with `input` and `output`, per million tokens; None if unknown."""
        self.changes: tuple[str, ...] = ()
        """Changes to the request for this upstream, one sentence each."""
        self.optional: tuple[str, ...] = ()
        """Fields of the body that can be left out if the upstream refuses them."""
        self.may_leave = False
        """Whether another upstream is left to try, for example after a response without content."""
        self.must_not_wait = False
        """Whether to send it only if a slot is free."""
        self.on_begin: list[Callable[[], None]] = []
        """Called before its first request is sent, once it has its slot."""
        self.on_first_token: Callable[[bool], object] = bool
        """Called with True at its first token, or with False once it will have none. Any thread or finalizer may call
        it, more than once: it takes no lock."""
        self.on_failed: Callable[[Exception], object] | None = None
        """Called with its error, if another attempt goes on."""
        self.racer: Racer | None = None
        self.is_late = False
        self.is_lost = False
        self.is_unread = False
        """Whether the caller reads the bytes of the answer itself."""
        self.request: Any = None
        """The last request that was sent; openai's errors refer to it."""
        self.was_claimed = False
        """Whether its first content arrived before that of any other attempt."""
        self.why: Why | None = None
        """Why the flow ended this attempt; None if an openai error did."""
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
        """The local address of the connection of its last request; None if unknown."""
        attempts = self.state.attempts
        opening = attempts[-1].phases.opening if attempts else None
        return opening.local_address if opening is not None else None

    @property
    def shows_first_token(self) -> bool:
        """Whether the answer is streamed, so that its first token can be seen."""
        return self.state.stream or self.state.collects

    @property
    def was_sent(self) -> bool:
        """Whether any byte of a request was sent."""
        return any(one.phases.send_started_ns is not None for one in self.state.attempts)

    def begin(self) -> None:
        """Record that a request is about to be sent."""
        if not self.started_ns:
            acts, self.on_begin = self.on_begin, []
            self.started_ns = now_ns()
            for act in acts:
                act()

    def wait_for_first_token(self, seconds: float) -> None:
        """Give up after some seconds without a first token, if the answer is streamed and another upstream is left."""
        if self.may_leave and self.shows_first_token:
            until_ns = now_ns() + int(seconds * 1e9)
            self.patience.until_ns = until_ns if self.deadline_ns is None else min(until_ns, self.deadline_ns)

    def join_race(self, racer: Racer) -> None:
        """Take part in a race with another attempt."""
        self.racer = racer
        racer.on_cancel = self._lose

    # For the flow of an attempt

    def planned(self, call: Call) -> Call:
        """Return the planned call, with `stream` set if a play needs to see its first token."""
        self.is_unread = call.unread
        return call if call.streams_for is None else streamed(call)

    @property
    def until_ns(self) -> int | None:
        """When the async driver has to end the attempt: monotonic nanoseconds. None if fastlane's transport does so."""
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
            del failed, error  # their tracebacks refer to this frame

    def failure(self, error: Exception) -> UpstreamFailed | None:
        """Return the UpstreamFailed with which an error ends this attempt; None if openai's retry rules apply."""
        time_ns = now_ns()
        if self.deadline_ns is not None and time_ns >= self.deadline_ns:
            return self._failed("deadline", error)
        until_ns = self.patience.until_ns
        if not self.was_claimed and until_ns is not None and time_ns >= until_ns:
            self.is_late = True
            if self.state.attempts:
                self.state.attempts[-1].given_up = "late"
            return self._failed("timeout", error)
        # What else comes, such as what a signal handler raises, is for the application.
        return self._failed("connection", error) if openai_error_class(error) and self._gives_way() else None

    def wait_for_whole_answer(self) -> None:
        """Drop the deadline for the first token, because the provider refuses to stream."""
        self.patience.until_ns = self.deadline_ns

    def before_retry(self, response: Any, wait_s: float) -> None:
        """Raise UpstreamFailed instead of a retry if another attempt is running, or the deadline would pass.

        `response`: the unsuccessful response; None if there was none. `wait_s`: seconds of the pause before the retry.
        """
        error = None if response is None else status_error_of(response, self.client)
        why = (None if response is None else failure_of_status(response.status_code)) or "server"
        if self._gives_way():
            raise self._failed(why, error)
        if self.deadline_ns is not None and now_ns() + wait_s * 1e9 >= self.deadline_ns:
            raise self._failed("deadline", error)

    def no_content(self, why: Failure) -> None:
        """Raise UpstreamFailed for a response without content, if another attempt is running or an upstream is left."""
        if self._gives_way() or self.may_leave:
            raise self._failed(why)

    def claim(self) -> None:
        """Record the first content. Raises Cancelled if another attempt was faster."""
        if self.racer is not None:
            self.racer.win()
        self.was_claimed = True
        self.on_first_token(True)
        # From here on the call's own timeouts apply, and the deadline to an answer that is assembled here.
        self.patience.until_ns = None if self.state.stream or self.is_unread else self.deadline_ns

    def _gives_way(self) -> bool:
        return self.racer is not None and self.racer.give_way()

    def _failed(self, why: Why, error: Exception | None = None) -> UpstreamFailed:
        failed = UpstreamFailed(why, error)
        if failed.request is None:
            failed.request = self.request
        return failed

    def _lose(self) -> None:
        """Record that another attempt was faster."""
        self.is_lost = True
        self.on_first_token(False)
        attempts = self.state.attempts
        if attempts:
            attempts[-1].given_up = "lost"
            if attempts[-1].ended_ns is None:
                attempts[-1].ended_ns = now_ns()

    def failed(self, error: Exception) -> None:
        """Record that the attempt has failed and another one goes on."""
        self.on_first_token(False)
        if self.on_failed is not None:
            self.on_failed(error)

    def forget(self) -> None:
        """Drop all references to the call, which has ended."""
        self.on_first_token(False)
        self.options = self.body = self.request = self.racer = None
        self.on_failed = None
        self.on_begin = []
