"""Run all checks, one after the other, and collect the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from . import _model, _network
from ._findings import ProviderFinding, found
from ._session import CHAT, DoctorSession, DoctorSettings, StatusError, has_proxy, of_status, problem_of

# Tokens of a short prompt, with what chat templates add.
_SHORT = 40


class Cost(NamedTuple):
    """What checks take of the provider, as estimated before."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


Look: TypeAlias = Callable[[DoctorSession], Iterator[ProviderFinding]]
Allow: TypeAlias = Callable[[Cost, str], bool]


class Examination(NamedTuple):
    settings: DoctorSettings
    findings: tuple[ProviderFinding, ...]
    is_reached: bool
    """Whether the provider answered over HTTP."""
    model: str | None
    interrupted: bool = False


def examine(
    settings: DoctorSettings, *, allow: Allow, on_check: Callable[[str], None] = lambda _name: None
) -> Examination:
    """Run all checks. `allow` is asked once, before what costs tokens; `on_check` gets the name of each check."""
    interrupted = False
    findings: list[ProviderFinding] = []
    with _network.http_client(settings.timeout_s, through_proxy=has_proxy(settings.target)) as http:
        session = DoctorSession(settings=settings, http=http)
        try:
            findings.extend(_run(session, allow, on_check))
        except KeyboardInterrupt:
            interrupted = True
    return Examination(settings, tuple(findings), session.is_reached, session.model, interrupted)


def _run(session: DoctorSession, allow: Allow, on_check: Callable[[str], None]) -> Iterator[ProviderFinding]:
    settings = session.settings

    def checked(name: str, look: Look) -> Iterator[ProviderFinding]:
        on_check(name)
        try:
            yield from look(session)
        except StatusError as error:
            problem, source = problem_of(error.status), settings.key_source
            yield found(name, of_status(error.status), "error", problem, key_source=source)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one check, the others go on
            cause = f" <- {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
            yield found(name, f"{type(error).__name__}{cause}", "error")

    idle: Callable[[], ProviderFinding] | None = None
    if has_proxy(settings.target):
        yield found("DNS", "left out: the system names a proxy for this URL, so this would examine the proxy", "proxy")
    else:
        for finding in checked("DNS", _network.look_network):
            yield finding
            if finding.state == "failed":
                return
        if settings.idle_s and not settings.quick:
            idle = _network.begin_idle(session)
    yield from checked("models", _network.look_models)
    if session.is_reached:
        session.model = settings.model or (session.models[0] if session.models and len(session.models) == 1 else None)
        checks = _paid_checks(session)
        missing = _missing(session, Cost(*map(sum, zip(*(cost for _, cost in checks.values()), strict=True))), allow)
        for name, (look, _) in checks.items():
            if missing:
                yield found(name, f"left out: {missing}", "not run")
                continue
            yield from checked(name, look)
            missing = "" if session.first_headers is not None else "the first call to the model failed"
        yield from _model.judge_answers(session)
    if idle is not None:
        on_check(f"idle life of a connection, up to {settings.idle_s:g} s")
        yield idle()


def _paid_checks(session: DoctorSession) -> dict[str, tuple[Look, Cost]]:
    """Return the checks that cost tokens, by their rows in the report. The others build on the first one."""
    forms = (len(_model.FORMS) + 1) * (1 if session.settings.quick else len(_model.ENDPOINTS))
    return {
        "first call": (_model.look_first, Cost(1, _SHORT, 16)),
        CHAT: (_model.look_bodies, Cost(forms, forms * 2 * _SHORT, forms * 6)),
        "the stream": (_model.look_stream, Cost(1, _SHORT, _model.STREAM_TOKENS)),
        "equal prompts": (_model.look_cache, Cost(2, 2 * _model.cache_tokens(session.known), 2)),
        "json_object": (_model.look_formats, Cost(2, 4 * _SHORT, 2 * _model.FORMAT_TOKENS)),
    }


def _missing(session: DoctorSession, total: Cost, allow: Allow) -> str:
    """Return why the model cannot be called; empty where it can."""
    settings = session.settings
    if session.needs_key:
        return f"it needs a key: put {'a valid one' if settings.key else 'one'} into {settings.key_source}"
    if session.model is None:
        return "it needs a model: name one with --model"
    return "" if allow(total, session.model) else "it costs tokens: --yes allows it"
