"""Run the plays around one call, fail-open, and report each call exactly once."""

from __future__ import annotations

import _thread
import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass, replace
from inspect import iscoroutinefunction
from typing import Any, Protocol

from .._fork import new_rlock, starts_over
from ..errors import CallRefusedError, ConfigurationError, PlayError
from ..records.record import CallRecord
from .call import Call
from .play import Play, Watcher
from .session import NO_SESSIONS, Sessions

Hook = Callable[[CallRecord], Any]
"""Called with the record of every call that is over, in the thread or task that ended it. Its result is ignored.

For a stream that Python has cleaned up it is called soon afterwards: by the event loop of that thread, or by a thread
of its own where none runs.
"""

# What a client remembers: enough for a look back over minutes of traffic, at about 2 kB a record without its stamps.
REMEMBERED_CALLS = 1_000

# Whoever reads the log of calls waits for a thread that is reporting some, whose hook may wait for the reader's lock.
_MOST_WAIT_S = 1.0

log = logging.getLogger("fastlane")


class Ended(Protocol):
    """A call that is over."""

    def record(self) -> CallRecord:
        """Its record, made when it is first asked for: most are never looked at."""


class Pipeline:
    """The plays and hooks of one client, and the log of its calls.

    Clients made by `with_options` share their parent's pipeline.
    """

    def __init__(self, plays: Iterable[Play], hooks: Iterable[Hook], *, strict: bool) -> None:
        if isinstance(plays, str):
            raise ConfigurationError(
                f"plays takes a list of instances of fastlane.Play such as [Connection()], got the str {plays!r}"
            )
        self.plays = tuple(plays)
        self.hooks = tuple(hooks)
        self.strict = strict
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
        for hook in self.hooks:
            if not callable(hook):
                raise ConfigurationError(f"hooks takes callables of one CallRecord, got {_described(hook)}")
            if iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
                raise ConfigurationError(
                    f"hooks are called, not awaited: {_described(hook)} is a coroutine function; let a plain function "
                    "hand the record over, for example with asyncio.Queue.put_nowait"
                )
        self.fingerprint = tuple(repr(play) for play in self.plays)
        # What a play does not override is not called: an empty loop is the cheapest plan.
        planners = sorted(_overriding(self.plays, "plan"), key=lambda play: play.stage)
        self._planners = planners
        self._openers = sorted(_overriding(self.plays, "open"), key=lambda play: play.stage)
        self._watching = _overriding(self.plays, "watch")
        self._learners = _overriding(self.plays, "learn")
        self.needs_facts = any(play.needs_facts for play in (*planners, *self._openers))
        """Whether any play looks at what is known of the provider."""
        self.keeps_bodies = all(play.keeps_bodies for play in (*self._planners, *self._watching, *self._openers))
        """Whether what was written of a body before it was planned still holds."""
        self.tells_downgrades = any(getattr(play, "on_downgrade", None) is not None for play in self.plays)
        """Whether the application wants to know when a tier is not the one that it asked for."""
        self.siblings: Any = None
        """The clients for other upstreams than the application's own, once one is needed."""
        self._calls: deque[Ended] = deque(maxlen=REMEMBERED_CALLS)
        self._unreported: deque[Callable[[], None]] = deque()
        self._reporting = new_rlock()
        self._logged: set[tuple[str, str]] = set()
        self._beside: tuple[Pipeline, ...] = ()
        self._companions: tuple[Play, ...] = ()
        self.routes_calls = any(play.routes for play in self._openers)
        """Whether a call may ask for a model to be chosen for it."""
        starts_over(self)

    def log_beside(self, other: Pipeline) -> None:
        """Keep one log of calls with another pipeline, which is asked for the calls of both."""
        self._calls = other._calls
        other._beside = (*other._beside, self)
        for companion in other._companions:
            self.accompany(companion)

    def accompany(self, companion: Play) -> None:
        """Have a companion see every call and every record before the plays do, in pipelines beside this one too.

        It is none of the client's plays: no fingerprint names it, and copies with other plays go without it.
        """
        self._companions = (*self._companions, companion)
        self._planners = [companion, *self._planners]
        self._learners = (companion, *self._learners)
        for other in self._beside:
            other.accompany(companion)

    def leave(self, companion: Play) -> None:
        """Go on without a companion."""
        self._companions = tuple(play for play in self._companions if play is not companion)
        self._planners = [play for play in self._planners if play is not companion]
        self._learners = tuple(play for play in self._learners if play is not companion)
        for other in self._beside:
            other.leave(companion)

    @property
    def shapes_calls(self) -> bool:
        """Whether any play takes part in calls: if not, no Call needs to be made."""
        return bool(self._planners or self._watching or self._openers)

    @property
    def opens_sessions(self) -> bool:
        """Whether any play opens sessions."""
        return bool(self._openers)

    @property
    def compresses_bodies(self) -> bool:
        """Whether any play may send bodies compressed."""
        return any(play.compresses_bodies for play in self._planners)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last calls, the oldest first."""
        self.report_abandoned(wait=True)
        return tuple([call.record() for call in tuple(self._calls)])

    def encoded_share(self, origin: str, endpoint: str) -> float | None:
        """Return the share of its bytes that a body has once it is encoded; None where no play encodes it."""
        shares = (play.encoded_share(origin, endpoint) for play in self.plays if play.compresses_bodies)
        return next((share for share in shares if share is not None), None)

    @property
    def checks_answers(self) -> bool:
        """Whether a play checks answers against the schema of the call."""
        return any(play.checks_answers for play in self.plays)

    def open(self, call: Call) -> Sessions:
        """Open the sessions of a call."""
        opened = []
        for play in self._openers:
            try:
                session = play.open(call)
            except CallRefusedError:
                raise
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.went_wrong(play, "open", error)
            else:
                if session is not None:
                    opened.append((play, session))
        return Sessions(self, tuple(opened))

    def plan(self, call: Call, sessions: Sessions = NO_SESSIONS) -> Call:
        """Let every play rewrite the call, in the order of their stages."""
        if sessions is NO_SESSIONS:
            return self._planned(call, zip(self._planners, self._planners, strict=True))
        planners = [*zip(self._planners, self._planners, strict=True), *sessions.having("plan")]
        return self._planned(call, sorted(planners, key=lambda pair: pair[0].stage))

    def _planned(self, call: Call, planners: Iterable[tuple[Play, Any]]) -> Call:
        for play, planner in planners:
            try:
                call = _checked(play, call, planner.plan(call))
            except CallRefusedError:
                raise
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.went_wrong(play, "plan", error)
        return call

    def watchers(self, call: Call, sessions: Sessions = NO_SESSIONS) -> tuple[Watcher, ...]:
        """The watchers that the plays want on this call's stream."""
        watchers: list[Watcher] = [*sessions.watchers()]
        for play in self._watching:
            try:
                watcher = play.watch(call)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.went_wrong(play, "watch", error)
            else:
                if watcher is not None:
                    watchers.append(watcher)
        return tuple(watchers)

    def see(self, watcher: Watcher, event: Any) -> bool:
        """Show one event to one watcher; True if it asks to stop the stream."""
        try:
            return bool(watcher.see(event))
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self.went_wrong(watcher, "see", error)
            return False

    @property
    def last_call(self) -> CallRecord | None:
        """The record of the last call; None before the first."""
        self.report_abandoned(wait=True)
        try:
            return self._calls[-1].record()
        except IndexError:
            return None

    def report(self, call: Ended, *, quietly: bool = False) -> None:
        """Remember a call that is over, and tell every play and every hook."""
        self._calls.append(call)
        if self._learners or self.hooks:
            self._tell(call.record(), quietly=quietly)

    def report_later(self, report: Callable[[], None]) -> None:
        """Have `report` called soon, outside of the finalizer that has ended a call. Waits for no lock.

        A finalizer runs at any point of any thread, even where that thread holds a lock that a play or a hook takes.
        """
        self._unreported.append(report)
        try:
            asyncio.get_running_loop().call_soon_threadsafe(self.report_abandoned)
        except RuntimeError:  # no loop runs here
            # Where no thread is to be had, the next call reports it, or whoever reads the log of calls.
            with suppress(RuntimeError):
                _thread.start_new_thread(self.report_abandoned, ())

    def report_abandoned(self, *, wait: bool = False) -> None:
        """Report the calls that finalizers have ended; `wait`: until another thread has reported those it has taken."""
        waits = wait
        while wait or self._unreported:
            taken: list[bool] = []
            try:
                # In one step: Ctrl-C cannot come between taking the lock and knowing of it.
                taken += map(self._reporting.acquire, (wait,), (_MOST_WAIT_S if wait else -1,))
                if not taken[0]:
                    break  # that thread goes on until there are none
                wait = False
                while self._unreported:
                    self._unreported.popleft()()
            finally:
                if taken and taken[0]:
                    self._reporting.release()
        for other in self._beside:
            other.report_abandoned(wait=waits)

    def begin_in_child(self) -> None:
        """In a forked child: the parent reports its calls."""
        self._unreported.clear()

    def _tell(self, record: CallRecord, *, quietly: bool = False) -> None:
        for play in self._learners:
            try:
                play.learn(record)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.went_wrong(play, "learn", error, quietly=quietly)
        for hook in self.hooks:
            try:
                hook(record)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.went_wrong(hook, "hook", error, quietly=quietly)

    def warn_once(self, message: str) -> None:
        """Log a warning the first time that it is given."""
        if (message, "") not in self._logged:
            self._logged.add((message, ""))
            log.warning("%s (logged once)", message)

    def went_wrong(self, what: object, doing: str, error: Exception, *, quietly: bool = False) -> None:
        """A play (or what bears its name), a watcher or a hook raised: log it once, or raise PlayError if strict."""
        if isinstance(what, str):
            name = what
        else:
            name = type(what).__name__ if isinstance(what, Play) else getattr(what, "__qualname__", type(what).__name__)
        # A call that a finaliser ended is told later, from a place that has nothing to do with it.
        if self.strict and not quietly:
            raise PlayError(f"{name} raised {type(error).__name__} in {doing}") from error
        if (name, doing) in self._logged:
            return
        self._logged.add((name, doing))
        # The class alone: an error's message may quote the prompt.
        log.warning(
            "%s raised %s in %s and is skipped; the call is not affected (logged once; strict=True raises)",
            name,
            type(error).__name__,
            doing,
        )


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


def _overriding(plays: tuple[Play, ...], method: str) -> tuple[Play, ...]:
    return tuple(play for play in plays if getattr(type(play), method) is not getattr(Play, method))


def _described(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} (did you mean {value.__name__}()?)"
    return f"{type(value).__name__} {value!r:.60}"
