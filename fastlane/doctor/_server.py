"""Checks that cost nothing: the list of models, and which provider this is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from .._clock import now_ns
from ..providers import facts_of, identified_facts
from ..providers.registry import UNKNOWN
from ..records.formatting import duration
from ..transport import Phases
from ._findings import ProviderFinding, found, in_ms
from ._session import DoctorSession, of_status, printable, problem_of


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """List the models twice over one connection, as the calls of an application go."""
    phases = Phases()
    try:
        session.list_models()
    except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
        if session.settings.target.is_secure:
            raise
        yield found("models", type(error).__name__, "wants https")  # TLS makes nothing of plain HTTP
        return
    started = now_ns()
    answer = session.list_models(phases=phases)
    taken_ns = now_ns() - started
    session.is_reached = True
    words = f"{duration(taken_ns / 1e9)} over {phases.http_version or 'a connection of another library'}"
    is_new = phases.reused is False
    value = {"ms": in_ms(taken_ns), "http_version": phases.http_version, "reused": phases.reused}
    words += ", on a new connection: the first one was not kept" if is_new else ""
    yield found("a request without a model", words, is_new and "not kept", value=value)
    models = _models_in(answer) if answer.status_code == 200 else None
    session.models = None if models is None else tuple(model["id"] for model in models)
    session.needs_key = answer.status_code in (401, 403)
    yield _judge_models(session, answer.status_code)
    yield _identify(session, answer.headers, models[0].get("owned_by") if models else None)


def _models_in(answer: httpx2.Response) -> list[dict[str, Any]] | None:
    """Return the models of a list in OpenAI's shape; None for anything else."""
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return None
    data = document.get("data") if isinstance(document, dict) else document
    if not isinstance(data, list):
        return None
    return [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]


def _judge_models(session: DoctorSession, status: int) -> ProviderFinding:
    wanted, listed = session.settings.model, session.models
    words, problem = of_status(status), problem_of(status)
    if listed is not None:
        names = [printable(name) for name in listed[:3]]
        words = f"{len(listed)} listed" + (f": {', '.join(names)}" if names else "") + (", …" * (len(listed) > 3))
        problem = ""
        if wanted is not None and listed and wanted not in listed:
            words, problem = f"{words}, and {wanted!r} is not one of them", "not listed"
    elif status in (401, 403) and session.settings.key is None:
        words, problem = f"{status}: a key is needed, and there is none", "key needed"
    elif 300 <= status < 400:
        words, problem = f"{status}: a redirect", "redirect"
    elif status == 200:
        words, problem = "200, but no list of models", "no list"
    elif status == 400 and not session.settings.target.is_secure:
        problem = "answered like https"  # so answer servers that get plain HTTP where they expect TLS
    value = {"status": status, "models": None if listed is None else len(listed)}
    return found("models", words, problem, value=value, key_source=session.settings.key_source)


def _identify(session: DoctorSession, headers: Mapping[str, str], owner: Any) -> ProviderFinding:
    by_origin = facts_of(session.settings.target.origin)
    by_word = identified_facts(headers, owned_by=owner if isinstance(owner, str) else None)
    session.known = known = by_word if by_origin.slug == UNKNOWN and by_word is not None else by_origin
    words = f"{known.name or known.slug}, by {'what it says of itself' if known is by_word else 'its address'}"
    if known.slug == UNKNOWN:
        words = "no facts are on record"
    elif by_word is not None and by_word.slug != known.slug:
        words += f"; by what it says of itself {by_word.name or by_word.slug}"
    server = printable(headers.get("server", ""))
    words += f' (server: "{server}")' if server else ""
    return found("what it is", words, value={"server": server, "by_its_word": by_word.slug if by_word else None})
