"""Run the plays of a client around its calls, fail-open, and report each call exactly once."""

from __future__ import annotations

import _thread
import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
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
from .session import CallOutcome, MakeSection, Session

OnCallEnd = Callable[[CallRecord], Any]
"""Called with the record of every call that has ended, in the thread or task that ended it.

For a garbage-collected stream it is called soon afterwards: by the event loop of that thread, or by a thread of its own
if none runs. An async client also takes a coroutine function, and runs its coroutine as a task.
"""

Watch = tuple[Any, Callable[[Any], Any]]
"""A play and its `on_event`: if that returns true or a `Stop`, the stream ends after the event."""

# The size of the log of calls: minutes of traffic, at about 2 kB a record without its timestamps.
REMEMBERED_CALLS = 1_000

# Reading the log waits for a thread that is reporting calls. Its callbacks may wait for a lock that the reader holds.
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
        """`of_call`: the sessions of the whole call, shared by all of its upstreams."""
        self._pipeline = pipeline
        self._of_call = of_call
        self._of_upstream = of_upstream
        self.by_hook: dict[str, list[tuple[Play, Session]]] = {}
        """By the name of a hook: the plays and sessions that define it, in the order of their stages."""
        for pair in sorted((*of_call, *of_upstream), key=lambda opened: opened[0].stage) if of_call else of_upstream:
            for hook in _hooks_of(type(pair[1])):  # type: ignore[arg-type]
                if hook in self.by_hook:
                    self.by_hook[hook].append(pair)
                else:
                    self.by_hook[hook] = [pair]

    def __bool__(self) -> bool:
        return bool(self.by_hook)

    def wrap_call(self, send: Any) -> Any:
        """Wrap a function that sends the call to its upstream with the sessions of the whole call."""
        return self._wrap("around_call", send, self._of_call)

    def wrap_upstream(self, send: Any) -> Any:
        """Wrap a function that sends the call to this upstream with the sessions of the upstream."""
        return self._wrap("around_call", send, self._of_upstream)

    def wrap_attempt(self, send: Any) -> Any:
        """Wrap a function that sends an attempt."""
        return self._wrap("around_attempt", send)

    def _wrap(self, hook: str, send: Any, among: tuple[tuple[Play, Session], ...] | None = None) -> Any:
        for play, session in reversed(self.by_hook.get(hook, [])):
            if among is not None and (play, session) not in among:
                continue
            try:
                wrapped = getattr(session, hook)(send)
                if not callable(wrapped):
                    raise TypeError(f"{hook}() must return a function that sends, got {type(wrapped).__name__}")
                send = wrapped
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._report_error(play, hook, error)
        return send

    def on_request(self, play: Play, session: Session, request: Any) -> Any:
        """Return the request as a session changes it."""
        try:
            found = session.on_request(request)
            if type(found) is not type(request):
                raise TypeError(f"on_request() must return a request, got {type(found).__name__}")
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._report_error(play, "on_request", error)
            return request
        return found

    def on_refused(self, error: Any) -> bool:
        """Call every `on_refused`; return whether any session has changed its plan."""
        taken_back = False
        for play, session in self.by_hook.get("on_refused", ()):
            try:
                taken_back = session.on_refused(error) or taken_back
            except Exception as raised:  # noqa: BLE001 - a play must not break a call
                self._report_error(play, "on_refused", raised)
        return taken_back

    def close(
        self, outcome: CallOutcome, *, quietly: bool, all_of_call: bool = True
    ) -> tuple[RecordSection | MakeSection, ...]:
        """Close all sessions, or only those of this upstream. Returns their record sections, or what makes these."""
        sections: list[RecordSection | MakeSection] = []
        to_raise = None
        for play, session in self.by_hook.get("close", ()):
            if not all_of_call and (play, session) not in self._of_upstream:
                continue
            try:
                section = session.close(outcome)
                if isinstance(section, RecordSection):
                    sections.append(section)
                elif callable(section):
                    assert self._pipeline is not None
                    sections.append(partial(_made, self._pipeline, play, section))
                elif section is not None:
                    raise TypeError(f"close() must return a RecordSection or None, got {type(section).__name__}")
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


def _made(pipeline: Pipeline, play: Play, make: MakeSection, outcome: CallOutcome) -> RecordSection | None:
    """Make a section when the record is first read. Keeps no other session of the call: those may hold its body."""
    try:
        return make(outcome)
    except Exception as error:  # noqa: BLE001 - a play must not break a call
        pipeline.report_error(play, "close", error, quietly=True)
        return None


NO_SESSIONS: Final = Sessions()


# The pipeline of a client


class Ended(Protocol):
    """A call that has ended."""

    def record(self) -> CallRecord:
        """Return its record, which is made on first use: most records are never read."""


class Pipeline:
    """The plays of one client, its `on_call_end` callbacks, and the log of its calls. Threads may share it.

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
        # Plays without `open` are not called.
        opening = [play for play in self.plays if type(play).open is not Play.open]
        self._openers = sorted(opening, key=lambda play: play.stage)
        self._openers_of_call = [play for play in self._openers if play.spans_upstreams]
        self._openers_of_upstream = [play for play in self._openers if not play.spans_upstreams]
        self.spans_upstreams = bool(self._openers_of_call)
        """Whether a play may send a call to several upstreams, or more than once at a time."""
        self.needs_facts = any(play.needs_facts for play in self._openers)
        """Whether any play reads `call.facts`."""
        self.providers: Any = None
        """The module `fastlane.providers`, if any play needs facts."""
        if self.needs_facts:
            # With the client and not with its first call, which may be made on an event loop: 30 ms of CPU.
            from .. import providers

            self.providers = providers
        self.keeps_bodies = all(play.keeps_bodies for play in self._openers)
        """Whether body bytes that were written before planning are still valid afterwards (`Play.keeps_bodies`)."""
        self.reads = frozenset(kind for play in self.plays for kind in play.reads)
        """Classes of attached data that some play reads."""
        self.other_clients: Any = None
        """The clients for further upstreams, once one is needed."""
        self._calls: deque[Ended] = deque(maxlen=REMEMBERED_CALLS)
        self.unreported: deque[Callable[[], None]] = deque()
        """Reports, still to be made, of calls that a finalizer has ended."""
        self._reporting = new_rlock()
        self._logged: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop on which a coroutine of `on_call_end` ran last."""
        self.shapes_calls = bool(self._openers)
        """Whether plays need a `Call`; if not, none is made."""
        self.routes_calls = any(play.routes for play in self._openers)
        """Whether a play may send a call to other upstreams."""
        starts_over(self)

    def share_log_of(self, other: Pipeline) -> None:
        """Use the call log of another pipeline, which then holds the calls of both."""
        self._calls, self.unreported, self._reporting = other._calls, other.unreported, other._reporting

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last 1,000 calls, oldest first."""
        self.report_abandoned(wait=True)
        return tuple([call.record() for call in tuple(self._calls)])

    @property
    def checks_answers(self) -> bool:
        """Whether a play checks answers against the schema of the call."""
        return any(play.checks_answers for play in self.plays)

    def open_call(self, call: Call) -> Sessions:
        """Open the sessions that span all upstreams of a call. Raises CallRefusedError."""
        return Sessions(self, self._opened(self._openers_of_call, call))

    def open_upstream(self, call: Call, sessions: Sessions) -> Sessions:
        """Open the sessions for one upstream, in addition to those of the whole call. Raises CallRefusedError."""
        if not self._openers_of_upstream:
            return sessions
        return Sessions(self, sessions._of_call, self._opened(self._openers_of_upstream, call))

    def _opened(self, plays: list[Play], call: Call) -> tuple[tuple[Play, Session], ...]:
        opened = []
        for play in plays:
            try:
                session = play.open(call)
                if session is not None and not isinstance(session, Session):
                    raise _InvalidHookResultError(f"open() must return a Session or None, got {type(session).__name__}")
            except CallRefusedError:
                raise
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.report_error(play, "open", error)
            else:
                if session is not None:
                    opened.append((play, session))
        return tuple(opened)

    def plan(self, call: Call, sessions: Sessions = NO_SESSIONS) -> Call:
        """Let every session rewrite the call, in the order of their stages. Raises CallRefusedError."""
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
        """Add a call that has ended to the log, and notify callbacks."""
        self._calls.append(call)
        if self.on_call_end:
            self._notify(call.record(), quietly=quietly)

    def report_later(self, report: Callable[[], None]) -> None:
        """Call `report` soon, after the finalizer that has ended a call. Takes no lock.

        A finalizer runs at any point of any thread, even where that thread holds a lock that a play takes.
        """
        self.unreported.append(report)
        try:
            asyncio.get_running_loop().call_soon_threadsafe(self.report_abandoned)
        except RuntimeError:  # no loop runs here
            # If no thread can be started, the next call or the next read of the log reports it.
            with suppress(RuntimeError):
                _thread.start_new_thread(self.report_abandoned, ())

    def report_abandoned(self, *, wait: bool = False) -> None:
        """Report the calls that finalizers have ended. `wait`: wait up to a second for a thread that reports some."""
        while wait or self.unreported:
            is_taken = False
            try:
                is_taken = self._reporting.acquire(wait, _MOST_WAIT_S if wait else -1)
                if not is_taken:
                    break  # the other thread reports all of them
                wait = False
                while self.unreported:
                    self.unreported.popleft()()
            finally:
                if is_taken:
                    self._reporting.release()

    def begin_in_child(self) -> None:
        """Drop the pending reports in a forked child: the parent makes them."""
        self.unreported.clear()

    def _notify(self, record: CallRecord, *, quietly: bool = False) -> None:
        for function in self.on_call_end:
            try:
                result = function(record)
                if iscoroutine(result):
                    self._run_later(function, result)
            except Exception as error:  # noqa: BLE001 - it must not break a call
                self.report_error(function, "on_call_end", error, quietly=quietly)

    def _run_later(self, function: OnCallEnd, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine of `on_call_end` as a task of the running event loop, or else of the last one."""

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_task_done, function))

        try:
            self._loop = asyncio.get_running_loop()
            begin()
        except RuntimeError:  # no loop runs in this thread
            if self._loop is None or self._loop.is_closed():
                coroutine.close()
                self.warn_once(
                    "on_call_end has a coroutine function, and no asyncio event loop is running: it was not called"
                )
            else:
                self._loop.call_soon_threadsafe(begin)

    def _on_task_done(self, function: OnCallEnd, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.report_error(function, "on_call_end", error, quietly=True)

    async def finish_tasks(self) -> None:
        """Wait for the `on_call_end` coroutines that run on this event loop."""
        loop = asyncio.get_running_loop() if self._tasks else None
        running = [task for task in self._tasks if task.get_loop() is loop]
        if running:
            await asyncio.wait(running)

    def warn_of_unread(self, data: Iterable[Any]) -> None:
        """Log once each kind of attached data that no play reads."""
        for item in data:
            warning = getattr(item, "unread_warning", None)
            if warning is not None and self.reads.isdisjoint(type(item).__mro__):
                _warn_once(warning)

    def warn_once(self, message: str) -> None:
        """Log a warning, once for each message."""
        if (message, "") not in self._logged:
            self._logged.add((message, ""))
            log.warning("%s (logged once)", message)

    def report_error(self, what: object, doing: str, error: Exception, *, quietly: bool = False) -> None:
        """Log the error of a play or callback, once for each play and hook; with `raise_play_errors`, raise PlayError.

        `what` is the play, its name, or the callback. `doing` is the hook. `quietly`: never raise.
        """
        if isinstance(what, str):
            name = what
        else:
            name = type(what).__name__ if isinstance(what, Play) else getattr(what, "__qualname__", type(what).__name__)
        # A call that a finalizer ended is reported later, from unrelated code that must not get the error.
        if self.raise_play_errors and not quietly:
            raise PlayError(f"{name} raised {_described_error(error, doing)}") from error
        if (name, doing) in self._logged:
            return
        self._logged.add((name, doing))
        log.warning(
            "%s raised %s and is skipped; the call is not affected (logged once; raise_play_errors=True raises)",
            name,
            _described_error(error, doing),
        )


@cache
def _warn_once(message: str) -> None:
    log.warning("%s (logged once)", message)


class _InvalidHookResultError(TypeError):
    """A hook returned something of the wrong type. The message names types only, so it may be logged."""


def _described_error(error: Exception, doing: str) -> str:
    # Of other errors only the class: their message may quote the prompt.
    if isinstance(error, _InvalidHookResultError):
        return f"TypeError in {doing} ({error})"
    return f"{type(error).__name__} in {doing}"


def _checked(play: Play, call: Call, planned: object) -> Call:
    """Return a planned call, with a change named after the play if it named none. Raises _InvalidHookResultError."""
    if not isinstance(planned, Call):
        raise _InvalidHookResultError(f"plan() must return a Call, got {type(planned).__name__}")
    if type(planned.body) is not dict and not isinstance(planned.body, Mapping):
        raise _InvalidHookResultError(f"the body of a Call must be a mapping, got {type(planned.body).__name__}")
    if planned.headers and not all(isinstance(text, str) for header in planned.headers.items() for text in header):
        raise _InvalidHookResultError("the headers of a Call must be strings")
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
