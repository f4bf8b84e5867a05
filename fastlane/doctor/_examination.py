"""Look at everything, one thing after the other, and collect what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import _idle, _provider, _way, _wire, _written
from ._check import Cost, ProviderCheck, RunningCheck, run
from ._findings import ProviderFinding
from ._line import LineError
from ._paid import chosen_model, first_call, free_checks, paid_checks, what_answers_said, what_is_missing
from ._session import DoctorSession, DoctorSettings, has_proxy

_WALK_S = 60.0

Allow = Callable[[Cost, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What came of it."""

    settings: DoctorSettings
    findings: tuple[ProviderFinding, ...]
    is_reached: bool
    """Whether the provider answered over HTTP."""
    model: str | None
    """The model that was asked, or would have been."""
    interrupted: bool = False


def examine(
    settings: DoctorSettings, *, allow: Allow, on_check: Callable[[str], None] = lambda _name: None
) -> Examination:
    """Look at everything. `allow` is asked once, before what costs tokens; `on_check` is told what comes next."""
    session = DoctorSession(settings=settings)
    rounds = _Rounds(session, allow, on_check)
    interrupted = False
    try:
        rounds.go()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        session.close()
    return Examination(
        settings=settings,
        findings=tuple(rounds.found),
        is_reached=session.is_reached,
        model=session.model,
        interrupted=interrupted,
    )


class _Rounds:
    def __init__(self, session: DoctorSession, allow: Allow, on_check: Callable[[str], None]) -> None:
        self._session = session
        self._settings = session.settings
        self._allow = allow
        self._on_check = on_check
        self._idle: RunningCheck | None = None
        self.found: list[ProviderFinding] = []

    def go(self) -> None:
        """Look at everything."""
        settings = self._settings
        proxied = has_proxy(settings.target)
        if proxied:
            self.found.append(_way.through_a_proxy())
        elif not self._walk():
            return
        self._session.http = _provider.connections(through_proxy=proxied, timeout_s=settings.timeout_s)
        self._look(
            ProviderCheck(group="the provider", name="models", look=_provider.look, timeout_s=3 * settings.timeout_s)
        )
        if self._session.is_reached:
            self._session.model = chosen_model(self._session)
            for check in free_checks(self._session):
                self._look(check)
            self._ask_the_model()
            self.found.extend(what_answers_said(self._session))
        if self._idle is not None:
            self._on_check(f"idle life of a connection, up to {settings.idle_s:g} s")
            self.found.extend(self._idle.finish())
        compared = _written.compare(self._session.known, self.found)
        if compared is not None:
            self.found.append(compared)

    def _walk(self) -> bool:
        """Whether the way leads somewhere."""
        settings = self._settings
        self._look(ProviderCheck(group="the way there", name="the way there", look=_walk, timeout_s=_WALK_S))
        if any(finding.state == "failed" for finding in self.found):
            return False
        self._look(
            ProviderCheck(
                group="the connection", name="HTTP versions", look=_versions, timeout_s=3 * settings.timeout_s
            )
        )
        if settings.idle_s and not settings.quick:
            check = ProviderCheck(
                group="the connection",
                name="idle life",
                look=_idle.look,
                timeout_s=settings.idle_s + 3 * settings.timeout_s,
            )
            self._idle = RunningCheck(check, self._session)
        return True

    def _ask_the_model(self) -> None:
        checks = paid_checks(self._session)
        first = first_call(self._session)
        missing = what_is_missing(self._session)
        model = self._session.model
        if not missing and model is not None:
            total = sum((check.cost for check in checks), first.cost)
            missing = "" if self._allow(total, model) else "it costs tokens: --yes allows it"
        if not missing:
            self._look(first)
            if self._session.plain_answer is None:
                missing = "the first call to the model failed"
        for check in checks:
            if missing:
                self.found.append(_left_out(check, missing))
            else:
                self._look(check)

    def _look(self, check: ProviderCheck) -> None:
        self._on_check(check.name)
        self.found.extend(run(check, self._session))


def _left_out(check: ProviderCheck, why: str) -> ProviderFinding:
    return ProviderFinding(group=check.group, looked_at=check.name, seen=f"left out: {why}", state="left out")


def _walk(session: DoctorSession) -> Iterator[ProviderFinding]:
    settings = session.settings
    return _wire.walk(session.target, session.steps, rounds=settings.rounds, timeout_s=settings.timeout_s)


def _versions(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Ask over HTTP/1.1 too, where HTTP/2 was chosen before."""
    steps, settings = session.steps, session.settings
    http1: bool | None
    try:
        http1 = _wire.answers_in_http1(session.target, steps.answering[0][0], settings.headers, settings.timeout_s)
    except TimeoutError:
        http1 = None
    except (OSError, LineError):
        http1 = False
    yield _way.http_versions(session.target, steps.alpn, http1)
    yield _way.new_connection(steps.dns_ns, min(steps.tcp_ns), min(steps.tls_ns, default=None))
