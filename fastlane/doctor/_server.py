"""Checks that cost nothing: the list of models, and which provider this is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from .._clock import now_ns
from ..providers import facts_of, identified_facts
from ..providers.registry import UNKNOWN
from ..records.formatting import duration
from ..transport import PHASES, Phases
from ._findings import ProviderFinding, found, in_ms
from ._session import DoctorSession, of_status, printable, problem_of

_MOST_BYTES = 16 * 1_048_576


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """List the models twice over one connection, as the calls of an application go."""
    url = session.models_url
    phases = Phases()
    try:
        session.http.get(url, headers=session.settings.headers)
    except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
        if session.target.is_secure:
            raise
        yield found("models", type(error).__name__, "wants https")  # TLS makes nothing of plain HTTP
        return
    started = now_ns()
    answer = session.http.get(url, headers=session.settings.headers, extensions={PHASES: phases})
    taken_ns = now_ns() - started
    session.is_reached = True
    yield judge_request(phases, taken_ns)
    listed = models_in(answer.content[:_MOST_BYTES]) if answer.status_code == 200 else None
    session.models = None if listed is None else tuple(listed)
    session.needs_key = answer.status_code in (401, 403)
    yield judge_models(session, answer.status_code, listed)
    yield identify(session, answer.headers, listed)


def models_in(body: bytes) -> dict[str, str | None] | None:
    """Return the models of a list in OpenAI's shape, each with its owner; None for anything else."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    data = document.get("data") if isinstance(document, dict) else document
    if not isinstance(data, list):
        return None
    return {
        model["id"]: owner if isinstance(owner := model.get("owned_by"), str) else None
        for model in data
        if isinstance(model, dict) and isinstance(model.get("id"), str)
    }


def judge_request(phases: Phases, taken_ns: int) -> ProviderFinding:
    """Judge what a request takes that needs no model, on an open connection of the transport that calls use."""
    words = f"{duration(taken_ns / 1e9)} over {phases.http_version or 'a connection of another library'}"
    new = phases.reused is False
    if new:
        words += ", on a new connection: the first one was not kept"
    value = {"ms": in_ms(taken_ns), "http_version": phases.http_version, "reused": phases.reused}
    return found("a request without a model", words, new and "not kept", value=value)


def judge_models(session: DoctorSession, status: int, listed: Mapping[str, Any] | None) -> ProviderFinding:
    """Judge whether the provider lists its models, and whether the one to call is among them."""
    wanted = session.settings.model
    words, problem = of_status(status), problem_of(status)
    if listed is not None:
        names = [printable(name) for name in listed]
        words = f"{len(names)} listed" + (f": {', '.join(names[:3])}" if names else "") + (", …" * (len(names) > 3))
        problem = ""
        if wanted is not None and listed and wanted not in listed:
            words, problem = f"{words}, and {wanted!r} is not one of them", "not listed"
    elif status in (401, 403) and session.settings.key is None:
        words, problem = f"{status}: a key is needed, and there is none", "key needed"
    elif 300 <= status < 400:
        words, problem = f"{status}: a redirect", "redirect"
    elif status == 200:
        words, problem = "200, but no list of models", "no list"
    elif status == 400 and not session.target.is_secure:
        problem = "answered like https"  # so answer servers that get plain HTTP where they expect TLS
    value = {"status": status, "models": None if listed is None else len(listed)}
    return found("models", words, problem, value=value, key_source=session.settings.key_source)


def identify(
    session: DoctorSession, headers: Mapping[str, str], listed: Mapping[str, str | None] | None
) -> ProviderFinding:
    """Find the facts on record for this address, or for what the server says it is."""
    owner = next(iter(listed.values()), None) if listed else None
    by_origin = facts_of(session.target.origin)
    by_word = identified_facts(headers, owned_by=owner)
    session.known = by_word if by_origin.slug == UNKNOWN and by_word is not None else by_origin
    name = session.known.name or session.known.slug
    if session.known is by_word:
        words = f"{name}, by what it says of itself"
    elif by_origin.slug != UNKNOWN:
        words = f"{name}, by its address"
        if by_word is not None and by_word.slug != by_origin.slug:
            words += f"; by what it says of itself {by_word.name or by_word.slug}"
    else:
        words = "no facts are on record"
    server = printable(headers.get("server", ""))
    if server:
        words += f' (server: "{server}")'
    value = {
        "server": server or None,
        "by_origin": by_origin.slug,
        "by_its_word": by_word.slug if by_word else None,
    }
    return found("what it is", words, value=value)
