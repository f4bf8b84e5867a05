"""Run the plays of a client around its calls, fail-open, and report each call exactly once."""

from __future__ import annotations

import _thread
import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass, replace
from functools import cache, lru_cache, partial
from inspect import iscoroutine
from typing import Any, Final, Protocol

from .._fork import new_rlock, starts_over
from ..errors import CallRefusedError, ConfigurationError, PlayError
from ..records.record import CallRecord
from ..records.section import RecordSection
from .call import Call
from .play import Play
from .session import CallOutcome, Session

OnCallEnd = Callable[[CallRecord], Any]
"""Called with the record of every call that is over, in the thread or task that ended it.

For a stream that Python has cleaned up it is called soon afterwards: by the event loop of that thread, or by a thread
of its own where none runs. The coroutine that a coroutine function returns is run as a task, by an async client alone.
"""

Watch = tuple[Any, Callable[[Any], Any]]
"""Who looks, a play as a rule, and how: true, or a `Stop`, ends the stream after the event."""

# What a client remembers: enough for a look back over minutes of traffic, at about 2 kB a record without its stamps.
REMEMBERED_CALLS = 1_000

# Reading the log of calls waits for a thread that reports some, whose callbacks may wait for a lock of the reader.
_MOST_WAIT_S = 1.0

log = logging.getLogger("fastlane")


# The sessions of a call


@lru_cache(maxsize=256)  # an application's classes come and go
def _hooks_of(session: Any) -> frozenset[str]:
    names = [name for name in vars(Session) if not name.startswith("_")]
    return frozenset(name for name in names if getattr(session, name) is not getattr(Session, name))


class Sessions:
    """The sessions of one call at one upstream, outermost first."""

    __slots__ = ("_of_call", "_of_upstream", "_pipeline", "by_hook")

    def __init__(
        self,
        pipeline: Pipeline | None = None,
        of_call: tuple[tuple[Play, Session], ...] = (),
        of_upstream: tuple[tuple[Play, Session], ...] = (),
    ) -> None:
        """`of_call`: those of the whole call, which the parts at other upstreams have as well."""
        self._pipeline = pipeline
        self._of_call = of_call
        self._of_upstream = of_upstream
        self.by_hook: dict[str, list[tuple[Play, Session]]] = {}
        """The sessions that define a hook, with their plays, by the hook's name and in the order of their stages."""
        for pair in sorted((*of_call, *of_upstream), key=_stage) if of_call else of_upstream:
            for hook in _hooks_of(type(pair[1])):  # type: ignore[arg-type]
                self.by_hook.setdefault(hook, []).append(pair)

    def __bool__(self) -> bool:
        return bool(self.by_hook)

    def at_upstream(self, opened: tuple[tuple[Play, Session], ...]) -> Sessions:
        """Return the sessions at an upstream: those of the whole call, and these."""
        return Sessions(self._pipeline, self._of_call, opened)

    def wrap_call(self, send: Any) -> Any:
        """Wrap a function that sends the call to the upstream that it names."""
        return self._wrap("around_call", send, self._of_call)

    def wrap_upstream(self, send: Any) -> Any:
        """Wrap a function that sends the call to this upstream."""
        return self._wrap("around_call", send, self._of_upstream)

    def wrap_attempt(self, send: Any) -> Any:
        """Wrap a function that sends an attempt."""
        return self._wrap("around_attempt", send)

    def _wrap(self, hook: str, send: Any, among: tuple[tuple[Play, Session], ...] | None = None) -> Any:
        for play, session in reversed(self.by_hook.get(hook, [])):
            if among is not None and (play, session) not in among:
                continue
            try:
                send = getattr(session, hook)(send)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._report_error(play, hook, error)
        return send

    def on_request(self, play: Play, session: Session, request: Any) -> Any:
        """Return the request that a session wants to be sent."""
        try:
            return session.on_request(request)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._report_error(play, "on_request", error)
            return request

    def on_refused(self, error: Any) -> bool:
        """Whether a session has taken back what the provider refused."""
        taken_back = False
        for play, session in self.by_hook.get("on_refused", ()):
            try:
                taken_back = session.on_refused(error) or taken_back
            except Exception as raised:  # noqa: BLE001 - a play must not break a call
                self._report_error(play, "on_refused", raised)
        return taken_back

    def close(self, outcome: CallOutcome, *, quietly: bool) -> tuple[RecordSection, ...]:
        """Close all sessions. Returns their sections of the record."""
        return self._close(self.by_hook.get("close", ()), outcome, quietly=quietly)

    def close_upstream(self, outcome: CallOutcome) -> None:
        """Close the sessions of this upstream: another one has brought the answer."""
        closing = [pair for pair in self.by_hook.get("close", ()) if pair in self._of_upstream]
        self._close(closing, outcome, quietly=True)

    def _close(
        self, opened: Sequence[tuple[Play, Session]], outcome: CallOutcome, *, quietly: bool
    ) -> tuple[RecordSection, ...]:
        sections, to_raise = [], None
        for play, session in opened:
            try:
                section = session.close(outcome)
                if section is not None:
                    sections.append(section)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                try:
                    self._report_error(play, "close", error, quietly=quietly)
                except PlayError as raised:  # once the others are closed as well
                    to_raise = raised
        if to_raise is not None:
            raise to_raise
        return tuple(sections)

    def _report_error(self, play: Play, hook: str, error: Exception, *, quietly: bool = False) -> None:
        assert self._pipeline is not None
        self._pipeline.report_error(play, hook, error, quietly=quietly)


def _stage(opened: tuple[Play, Session]) -> int:
    return opened[0].stage


NO_SESSIONS: Final = Sessions()


# The pipeline of a client


class Ended(Protocol):
    """A call that is over."""

    def record(self) -> CallRecord:
        """Its record, made when it is first asked for: most are never looked at."""


class Listener(Protocol):
    """Told of every call to a generating endpoint. It raises nothing."""

    def began(self, call: Call) -> None:
        """A call begins, as the application has issued it."""

    def ended(self, record: CallRecord) -> None:
        """A call has ended."""


class Pipeline:
    """The plays of one client, what it calls at the end of a call, and the log of its calls.

    Clients made by `with_options` share their parent's pipeline.
    """

    def __init__(
        self, plays: Iterable[Play], on_call_end: Iterable[OnCallEnd] = (), *, raise_play_errors: bool = False
    ) -> None:
        if isinstance(plays, str):
            raise ConfigurationError(
                f"plays takes a list of instances of fastlane.Play such as [Connection()], got the str {plays!r}"
            )
        self.plays = tuple(plays)
        self.on_call_end = tuple(on_call_end)
        self.raise_play_errors = raise_play_errors
        self.implicit: tuple[Play, ...] = ()
        """The default plays that the application did not name."""
        for play in self.plays:
            if not isinstance(play, Play):
                raise ConfigurationError(
                    f"plays takes instances of fastlane.Play such as Connection(), got {_described(play)}"
                )
            if not is_dataclass(play):
                raise ConfigurationError(
                    f"{type(play).__name__} must be a frozen dataclass: its repr is its fingerprint in every record"
                )
        kinds = [type(play) for play in self.plays]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ConfigurationError(f"plays holds {kind.__name__} twice; give each play once")
        self.fingerprint = tuple(repr(play) for play in self.plays)
        # What a play does not override is not called.
        opening = [play for play in self.plays if type(play).open is not Play.open]
        self._openers = sorted(opening, key=lambda play: play.stage)
        self._openers_of_call = [play for play in self._openers if play.spans_upstreams]
        self._openers_of_upstream = [play for play in self._openers if not play.spans_upstreams]
        self.spans_upstreams = bool(self._openers_of_call)
        """Whether a play may send a call to several upstreams, or more than once at a time."""
        self.needs_facts = any(play.needs_facts for play in self._openers)
        """Whether any play looks at what is known of the provider."""
        self.providers: Any = None
        """The module of facts, where any play looks at them."""
        if self.needs_facts:
            # With the client and not with its first call, which may be made on an event loop: 30 ms of CPU.
            from .. import providers

            self.providers = providers
        self.keeps_bodies = all(play.keeps_bodies for play in self._openers)
        """Whether what was written of a body before it was planned still holds."""
        self.reads = frozenset(kind for play in self.plays for kind in play.reads)
        """Classes of attached data that make a difference to a play."""
        self.other_clients: Any = None
        """The clients for other upstreams than the application's own, once one is needed."""
        self._calls: deque[Ended] = deque(maxlen=REMEMBERED_CALLS)
        self.unreported: deque[Callable[[], None]] = deque()
        """Reports of calls that finalizers have ended."""
        self._reporting = new_rlock()
        self._logged: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Of the last call whose end was told to a coroutine function."""
        self._sharing_log: tuple[Pipeline, ...] = ()
        self.listeners: tuple[Listener, ...] = ()
        self.shapes_calls = bool(self._openers)
        """Whether plays or listeners look at calls: if not, no Call needs to be made."""
        self.routes_calls = any(play.routes for play in self._openers)
        """Whether a play may send a call to other upstreams."""
        starts_over(self)

    def share_log_of(self, other: Pipeline) -> None:
        """Keep one log of calls with another pipeline, which is asked for the calls of both."""
        self._calls, self.unreported, self._reporting = other._calls, other.unreported, other._reporting
        other._sharing_log = (*other._sharing_log, self)
        for listener in other.listeners:
            self.add_listener(listener)

    def add_listener(self, listener: Listener) -> None:
        """Have a listener told of every call, in pipelines beside this one too. It is no play."""
        self.listeners = (*self.listeners, listener)
        self.shapes_calls = True
        for other in self._sharing_log:
            other.add_listener(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Tell a listener of no further call."""
        self.listeners = tuple(each for each in self.listeners if each is not listener)
        self.shapes_calls = bool(self._openers or self.listeners)
        for other in self._sharing_log:
            other.remove_listener(listener)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last calls, the oldest first."""
        self.report_abandoned(wait=True)
        return tuple([call.record() for call in tuple(self._calls)])

    @property
    def checks_answers(self) -> bool:
        """Whether a play checks answers against the schema of the call."""
        return any(play.checks_answers for play in self.plays)

    def open_call(self, call: Call) -> Sessions:
        """Open the sessions of the plays that have one for all upstreams of a call."""
        return Sessions(self, self._opened(self._openers_of_call, call))

    def open_upstream(self, call: Call, sessions: Sessions) -> Sessions:
        """Open the sessions of a call at one upstream, beside those of the whole call."""
        if not self._openers_of_upstream:
            return sessions
        opened = self._opened(self._openers_of_upstream, call)
        return Sessions(self, of_upstream=opened) if sessions is NO_SESSIONS else sessions.at_upstream(opened)

    def _opened(self, plays: list[Play], call: Call) -> tuple[tuple[Play, Session], ...]:
        opened = []
        for play in plays:
            try:
                session = play.open(call)
            except CallRefusedError:
                raise
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.report_error(play, "open", error)
            else:
                if session is not None:
                    opened.append((play, session))
        return tuple(opened)

    def plan(self, call: Call, sessions: Sessions = NO_SESSIONS) -> Call:
        """Let every session rewrite the call, in the order of their stages."""
        for play, session in sessions.by_hook.get("plan", ()):
            try:
                planned = session.plan(call)
                if planned is not call:
                    call = _checked(play, call, planned)
            except CallRefusedError:
                raise
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.report_error(play, "plan", error)
        return call

    @property
    def last_call(self) -> CallRecord | None:
        """The record of the last call; None before the first."""
        self.report_abandoned(wait=True)
        try:
            return self._calls[-1].record()
        except IndexError:
            return None

    def report(self, call: Ended, *, quietly: bool = False) -> None:
        """Remember a call that is over, and tell of it."""
        self._calls.append(call)
        if self.on_call_end or self.listeners:
            self._notify(call.record(), quietly=quietly)

    def report_later(self, report: Callable[[], None]) -> None:
        """Have `report` called soon, outside of the finalizer that has ended a call. Waits for no lock.

        A finalizer runs at any point of any thread, even where that thread holds a lock that a play takes.
        """
        self.unreported.append(report)
        try:
            asyncio.get_running_loop().call_soon_threadsafe(self.report_abandoned)
        except RuntimeError:  # no loop runs here
            # Where no thread is to be had, the next call reports it, or whoever reads the log of calls.
            with suppress(RuntimeError):
                _thread.start_new_thread(self.report_abandoned, ())

    def report_abandoned(self, *, wait: bool = False) -> None:
        """Report the calls that finalizers have ended; `wait`: until another thread has reported those it has taken."""
        while wait or self.unreported:
            is_taken = False
            try:
                is_taken = self._reporting.acquire(wait, _MOST_WAIT_S if wait else -1)
                if not is_taken:
                    break  # that thread goes on until there are none
                wait = False
                while self.unreported:
                    self.unreported.popleft()()
            finally:
                if is_taken:
                    self._reporting.release()

    def begin_in_child(self) -> None:
        """In a forked child: the parent reports its calls."""
        self.unreported.clear()

    def _notify(self, record: CallRecord, *, quietly: bool = False) -> None:
        for listener in self.listeners:
            listener.ended(record)
        for function in self.on_call_end:
            try:
                result = function(record)
                if iscoroutine(result):
                    self._run_later(function, result)
            except Exception as error:  # noqa: BLE001 - it must not break a call
                self.report_error(function, "on_call_end", error, quietly=quietly)

    def _run_later(self, function: OnCallEnd, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine of `on_call_end` as a task of the running event loop, or of the one before."""

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(partial(self._ran, function))

        try:
            self._loop = asyncio.get_running_loop()
            begin()
        except RuntimeError:  # no loop runs in this thread
            if self._loop is None or self._loop.is_closed():
                coroutine.close()
                self.warn_once("on_call_end has a coroutine function, and no event loop of asyncio runs it")
            else:
                self._loop.call_soon_threadsafe(begin)

    def _ran(self, function: OnCallEnd, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.report_error(function, "on_call_end", error, quietly=True)

    async def finish_tasks(self) -> None:
        """Wait for the coroutines of `on_call_end` that run on this event loop."""
        loop = asyncio.get_running_loop() if self._tasks else None
        running = [task for task in self._tasks if task.get_loop() is loop]
        if running:
            await asyncio.wait(running)

    def warn_of_unread(self, data: Iterable[Any]) -> None:
        """Log once what is attached to calls and makes no difference to any play."""
        for item in data:
            warning = getattr(item, "unread_warning", None)
            if warning is not None and self.reads.isdisjoint(type(item).__mro__):
                _warn_once(warning)

    def warn_once(self, message: str) -> None:
        """Log a warning the first time that it is given."""
        if (message, "") not in self._logged:
            self._logged.add((message, ""))
            log.warning("%s (logged once)", message)

    def report_error(self, what: object, doing: str, error: Exception, *, quietly: bool = False) -> None:
        """A play (or what bears its name) or a callback raised: log it once, or raise PlayError if the client does."""
        if isinstance(what, str):
            name = what
        else:
            name = type(what).__name__ if isinstance(what, Play) else getattr(what, "__qualname__", type(what).__name__)
        # A call that a finaliser ended is told later, from a place that has nothing to do with it.
        if self.raise_play_errors and not quietly:
            raise PlayError(f"{name} raised {type(error).__name__} in {doing}") from error
        if (name, doing) in self._logged:
            return
        self._logged.add((name, doing))
        # The class alone: an error's message may quote the prompt.
        log.warning(
            "%s raised %s in %s and is skipped; the call is not affected (logged once; raise_play_errors=True raises)",
            name,
            type(error).__name__,
            doing,
        )


@cache
def _warn_once(message: str) -> None:
    log.warning("%s (logged once)", message)


def _checked(play: Play, call: Call, planned: object) -> Call:
    """What a play made of a call, if it can be sent; a change that the play did not name is named after it."""
    if not isinstance(planned, Call):
        raise TypeError(f"plan() must return a Call, got {type(planned).__name__}")
    if not isinstance(planned.body, Mapping):
        raise TypeError(f"the body of a Call must be a mapping, got {type(planned.body).__name__}")
    if not all(isinstance(text, str) for header in planned.headers.items() for text in header):
        raise TypeError("the headers of a Call must be strings")
    if planned.changes == call.changes:
        changed = [what for what in ("body", "headers") if getattr(planned, what) is not getattr(call, what)]
        if changed:
            return replace(
                planned, changes=(*call.changes, f"{type(play).__name__} changed the {' and '.join(changed)}")
            )
    return planned


def _described(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} (did you mean {value.__name__}()?)"
    return f"{type(value).__name__} {value!r:.60}"
