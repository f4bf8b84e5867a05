"""Run all checks, one after the other, and collect the findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import _bodies, _model, _network, _server
from ._answers import judge_answers
from ._facts import compare
from ._findings import ProviderFinding, found
from ._session import CHAT, Cost, DoctorSession, DoctorSettings, Examination, ProviderCheck, RunningCheck, has_proxy

_NETWORK_S = 60.0
# Longest check of one thing, however many calls it takes.
_MOST_S = 180.0
# Tokens of a short prompt, with what chat templates add.
_SHORT = 40

Allow = Callable[[Cost, str], bool]


def examine(
    settings: DoctorSettings, *, allow: Allow, on_check: Callable[[str], None] = lambda _name: None
) -> Examination:
    """Run all checks. `allow` is asked once, before what costs tokens; `on_check` gets the name of each check."""
    proxied = has_proxy(settings.target)
    interrupted = False
    findings: list[ProviderFinding] = []
    with _network.http_client(settings.timeout_s, through_proxy=proxied) as http:
        session = DoctorSession(settings=settings, http=http)
        try:
            _run(session, proxied, allow, on_check, findings)
        except KeyboardInterrupt:
            interrupted = True
    return Examination(
        settings=settings,
        findings=tuple(findings),
        is_reached=session.is_reached,
        model=session.model,
        interrupted=interrupted,
    )


def _run(
    session: DoctorSession,
    proxied: bool,
    allow: Allow,
    on_check: Callable[[str], None],
    findings: list[ProviderFinding],
) -> None:
    settings = session.settings

    def run(check: ProviderCheck) -> None:
        on_check(check.name)
        findings.extend(RunningCheck(check, session).finish())

    idle: RunningCheck | None = None
    if proxied:
        findings.append(
            found("DNS", "left out: the system names a proxy for this URL, so this would examine the proxy", "proxy")
        )
    else:
        run(ProviderCheck("DNS", _network.look, _NETWORK_S))
        if any(finding.state == "failed" for finding in findings):
            return
        if settings.idle_s and not settings.quick:
            idle = RunningCheck(
                ProviderCheck("idle life", _network.look_idle, settings.idle_s + 3 * settings.timeout_s), session
            )
    run(ProviderCheck("models", _server.look, 3 * settings.timeout_s))
    if session.is_reached:
        session.model = settings.model
        if session.model is None and session.models is not None and len(session.models) == 1:
            session.model = session.models[0]
        checks = paid_checks(session)
        missing = _missing(session, checks, allow)
        for check in checks:
            if missing:
                findings.append(found(check.name, f"left out: {missing}", "not run"))
                continue
            run(check)
            missing = "" if session.has_answered else "the first call to the model failed"
        findings.extend(judge_answers(session))
    if idle is not None:
        on_check(f"idle life of a connection, up to {settings.idle_s:g} s")
        findings.extend(idle.finish())
    compared = compare(session.known, findings)
    if compared is not None:
        findings.append(compared)


def paid_checks(session: DoctorSession) -> tuple[ProviderCheck, ...]:
    """Return the checks that cost tokens. The others build on the first one."""
    answer_s = session.settings.answer_timeout_s
    endpoints = 1 if session.settings.quick else len(_bodies.ENDPOINTS)
    forms = (len(_bodies.FORMS) + 1) * endpoints
    prompt = _model.cache_tokens(session.known)
    costs = (
        ("first call", _model.look_first, Cost(1, _SHORT, 16)),
        (CHAT, _bodies.look, Cost(forms, forms * 2 * _SHORT, forms * 6)),
        ("the stream", _model.look_stream, Cost(1, _SHORT, _model.STREAM_TOKENS)),
        ("equal prompts", _model.look_cache, Cost(2, 2 * prompt, 2)),
        ("json_object", _model.look_formats, Cost(2, 4 * _SHORT, 2 * _model.FORMAT_TOKENS)),
    )
    return tuple(
        ProviderCheck(name, look, min(_MOST_S, max(cost.calls, 2) * answer_s), cost) for name, look, cost in costs
    )


def _missing(session: DoctorSession, checks: Sequence[ProviderCheck], allow: Allow) -> str:
    """Return why the model cannot be called; empty where it can."""
    settings = session.settings
    if session.needs_key:
        return f"it needs a key: put {'a valid one' if settings.key else 'one'} into {settings.key_source}"
    if session.model is None:
        return "it needs a model: name one with --model"
    total = Cost()
    for check in checks:
        total = total.plus(check.cost)
    return "" if allow(total, session.model) else "it costs tokens: --yes allows it"
