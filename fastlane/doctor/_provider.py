"""What the server says of itself when it is asked for its models, which costs nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from .._clock import now_ns
from ..providers import facts_of, identified_facts
from ..providers.registry import UNKNOWN
from ..transport import PHASES, Phases, Transport
from ._findings import Group, ProviderFinding, in_ms, milliseconds
from ._session import DoctorSession
from ._words import failure, refused

_GROUP: Group = "the provider"
_MOST_BYTES = 16 * 1_048_576
_MOST_NAME = 60
_MAYBE_HTTPS = "Does it want https://?"


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Ask for the models, twice over one connection, as the calls of an application go."""
    assert session.http is not None
    url = f"{session.target.base_url}/models"
    phases = Phases()
    try:
        session.http.get(url, headers=session.settings.headers)
    except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
        if session.target.is_secure:
            raise
        failed = failure(_GROUP, "models", error, session.settings.key_source)
        yield dataclasses.replace(failed, advice=_MAYBE_HTTPS)  # TLS makes nothing of plain HTTP
        return
    started = now_ns()
    answer = session.http.get(url, headers=session.settings.headers, extensions={PHASES: phases})
    taken_ns = now_ns() - started
    session.is_reached = True
    session.headers_seen.update(answer.headers)
    yield over_the_shared_connections(phases, taken_ns)
    listed = models_in(answer.content[:_MOST_BYTES]) if answer.status_code == 200 else None
    session.models = None if listed is None else tuple(listed)
    session.key_refused = session.settings.key is not None and answer.status_code in (401, 403)
    session.needs_key = answer.status_code in (401, 403)
    yield of_models(session, answer.status_code, listed)
    yield identity(session, answer.headers, listed)


def models_in(body: bytes) -> dict[str, str | None] | None:
    """The models of a list in OpenAI's shape, each with its owner; None for anything else."""
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


def over_the_shared_connections(phases: Phases, taken_ns: int) -> ProviderFinding:
    """What a request takes that needs no model, on an open connection of the transport that calls use."""
    seen = f"{milliseconds(taken_ns)} over {phases.http_version or 'a connection of another library'}"
    if phases.reused is False:
        seen += ", on a new connection: the first one was not kept"
    return ProviderFinding(
        group="the connection",
        looked_at="a request without a model",
        seen=seen,
        state="notable" if phases.reused is False else "seen",
        advice="The server closes connections after an answer: every call pays for a new one."
        if phases.reused is False
        else "",
        value={
            "ms": in_ms(taken_ns),
            "http_version": phases.http_version,
            "reused": phases.reused,
            "kernel_ms": in_ms(phases.round_trip_time_ns),
        },
    )


def of_models(session: DoctorSession, status: int, listed: Mapping[str, str | None] | None) -> ProviderFinding:
    """Whether the provider lists its models, and whether the one to be asked is among them."""
    value: dict[str, Any] = {"status": status, "models": None if listed is None else len(listed)}
    key_source = session.settings.key_source
    if status in (401, 403):
        meaning, advice = refused(status, key_source=key_source)
        if session.settings.key is None:
            meaning = "a key is needed, and there is none"
            advice = f"Put a key into {key_source}."
        return _finding("models", f"{status}: {meaning}", "notable", advice, value)
    if 300 <= status < 400:
        return _finding("models", f"{status}: a redirect", "notable", "Use the URL that it leads to.", value)
    if listed is None:
        advice = "Check the URL's path: it mostly ends in /v1." if status == 404 else ""
        if status == 400 and not session.target.is_secure:
            advice = _MAYBE_HTTPS  # so answer servers that know plain HTTP where they expect TLS
        if status == 200:
            return _finding("models", "200, but no list of models", "notable", "Is that an OpenAI-style API?", value)
        return _finding("models", f"{status}: {refused(status)[0]}", "notable", advice, value)
    wanted = session.settings.model
    if wanted is not None and listed and wanted not in listed:
        seen = f"{_many(listed)}, and {wanted!r} is not one of them"
        return _finding("models", seen, "notable", "Check --model; some providers list not all.", value)
    return _finding("models", _many(listed), "seen", "", value)


def identity(
    session: DoctorSession, headers: Mapping[str, str], listed: Mapping[str, str | None] | None
) -> ProviderFinding:
    """How the server says what it is, and what is written down of that kind."""
    owner = next(iter(listed.values()), None) if listed else None
    by_origin = facts_of(session.target.origin)
    by_word = identified_facts(headers, owned_by=owner)
    session.known = by_word if by_origin.slug == UNKNOWN and by_word is not None else by_origin
    said = _printable(headers.get("server"))
    value = {"server": said, "by_origin": by_origin.slug, "by_its_word": by_word.slug if by_word else None}
    name = session.known.name or session.known.slug
    if session.known is by_word:
        seen = f"{name}, by what it says of itself"
    elif by_origin.slug != UNKNOWN:
        seen = f"{name}, by its address"
        if by_word is not None and by_word.slug != by_origin.slug:
            seen += f"; by what it says of itself {by_word.name or by_word.slug}"
    else:
        seen = "nothing is written down of it"
    if said:
        seen += f' (server: "{said}")'
    return _finding("what it is", seen, "seen", "", value)


def connections(*, through_proxy: bool, timeout_s: float) -> httpx2.Client:
    """An HTTP client on connections of its own: the transport's, or the library's where there is a proxy."""
    if through_proxy:
        return httpx2.Client(http2=True, timeout=timeout_s)
    return httpx2.Client(transport=Transport(ping_s=None), timeout=timeout_s)


def _finding(looked_at: str, seen: str, state: Any, advice: str, value: Any) -> ProviderFinding:
    return ProviderFinding(group=_GROUP, looked_at=looked_at, seen=seen, state=state, advice=advice, value=value)


def _many(listed: Mapping[str, str | None]) -> str:
    names = [name[:_MOST_NAME] for name in listed]
    few = ", ".join(names[:3])
    return f"{len(names)} listed" + (f": {few}" if names else "") + (", …" if len(names) > 3 else "")


def _printable(value: str | None) -> str | None:
    return "".join(letter for letter in value if letter.isprintable())[:_MOST_NAME] if value else None
