"""Which checks ask the provider something: what costs nothing, and what costs tokens and how many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from . import _answers, _cache, _forms, _streaming, _structured, _tiers
from ._answers import count_paths
from ._asking import ModelCalls
from ._check import Cost, ProviderCheck
from ._findings import MeasuredFact, ProviderFinding, in_ms, milliseconds
from ._session import DoctorSession

# Longest look at one thing, however many calls it takes.
_MOST_S = 180.0
# What a short prompt comes to, with what chat templates add.
_SHORT = 40


def free_checks(session: DoctorSession) -> tuple[ProviderCheck, ...]:
    """What can be asked without spending a token."""
    settings = session.settings
    endpoints = _forms.ENDPOINTS[:1] if settings.quick else _forms.ENDPOINTS
    requests = 1 + 3 * len(_forms.FORMS)
    return tuple(
        ProviderCheck(
            group="request bodies",
            name=endpoint,
            look=partial(_forms.look_for_free, endpoint=endpoint),
            timeout_s=requests * settings.probe_timeout_s,
        )
        for endpoint in endpoints
    )


def chosen_model(session: DoctorSession) -> str | None:
    """The model to ask: the one that was named, or the only one that there is."""
    if session.settings.model is None and session.models is not None and len(session.models) == 1:
        return session.models[0]
    return session.settings.model


def what_is_missing(session: DoctorSession) -> str:
    """Why the model cannot be asked; empty where it can."""
    settings = session.settings
    if session.key_refused:
        return "the key was not accepted"
    if session.model is None:
        return "it needs a model: name one with --model"
    if settings.key is None and session.needs_key:
        return f"it needs a key: put one into {settings.key_source}"
    return ""


def first_call(session: DoctorSession) -> ProviderCheck:
    """The first call of the model, on which the others build."""
    return ProviderCheck(
        group="the provider",
        name="first call",
        look=_first_call,
        timeout_s=2 * session.settings.answer_timeout_s,
        cost=Cost(calls=1, input_tokens=_SHORT, output_tokens=16),
    )


def paid_checks(session: DoctorSession) -> tuple[ProviderCheck, ...]:
    """What else costs tokens."""
    timeout_s = session.settings.answer_timeout_s
    tiers = _tiers.calls(session.known)
    there = [endpoint for endpoint, found in session.free_forms.items() if found.is_there] or [_forms.CHAT]
    forms = (len(_forms.FORMS) + 1) * len(there)
    prompt_tokens = _cache.tokens_wanted(session.known)
    return (
        ProviderCheck(
            group="request bodies",
            name="real calls in each form",
            look=_forms.look_with_tokens,
            timeout_s=min(_MOST_S, forms * timeout_s),
            cost=Cost(calls=forms, input_tokens=forms * 2 * _SHORT, output_tokens=forms * 6),
        ),
        ProviderCheck(
            group="streaming",
            name="a stream",
            look=_streaming.look,
            timeout_s=min(_MOST_S, 2 * timeout_s),
            cost=Cost(calls=1, input_tokens=_SHORT, output_tokens=_streaming.TOKENS),
        ),
        ProviderCheck(
            group="prompt cache",
            name="equal prompts",
            look=_cache.look,
            timeout_s=min(_MOST_S, 2 * timeout_s),
            cost=Cost(calls=2, input_tokens=2 * prompt_tokens, output_tokens=2),
        ),
        ProviderCheck(
            group="service tiers",
            name="tiers",
            look=_tiers.look,
            timeout_s=min(_MOST_S, tiers * timeout_s),
            cost=Cost(calls=tiers, input_tokens=tiers * _SHORT, output_tokens=tiers),
        ),
        ProviderCheck(
            group="structured outputs",
            name="bounded answers",
            look=_structured.look,
            timeout_s=min(_MOST_S, 2 * timeout_s),
            cost=Cost(calls=2, input_tokens=4 * _SHORT, output_tokens=2 * _structured.TOKENS),
        ),
    )


def _first_call(session: DoctorSession) -> Iterator[ProviderFinding]:
    assert session.model is not None
    session.asking = asking = ModelCalls(session.settings, session.model)
    asking.connect()
    whole = asking.learn_limit(_tiers.PROMPT)
    session.plain_answer = whole.data
    session.headers_seen.update(whole.headers)
    session.count_paths[_forms.CHAT] = count_paths(whole.data, _forms.CHAT, session.known)
    taken_ns = whole.ended_ns - whole.sent_ns
    heeded = asking.limit_field not in asking.unheeded_limits
    facts = [MeasuredFact(path=("parameters", asking.limit_field), value=True)] if heeded else []
    facts += [MeasuredFact(path=("parameters", name), value=False) for name in asking.refused_limits]
    least = f"{asking.least_tokens} token{'' if asking.least_tokens == 1 else 's'}"
    seen = f"answered in {milliseconds(taken_ns)}, limited to {least} by {asking.limit_field}"
    if asking.refused_limits:
        seen += f"; {' and '.join(asking.refused_limits)} refused"
    unheeded = " and ".join(asking.unheeded_limits)
    yield ProviderFinding(
        group="the provider",
        looked_at="first call",
        seen=seen,
        state="notable" if unheeded else "seen",
        advice=f"It does not keep to {unheeded}: answers can grow longer than they may." if unheeded else "",
        value={
            "ms": in_ms(taken_ns),
            "limit_field": asking.limit_field,
            "least_tokens": asking.least_tokens,
            "refused_limits": list(asking.refused_limits),
            "unheeded_limits": list(asking.unheeded_limits),
        },
        facts=tuple(facts),
    )


def what_answers_said(session: DoctorSession) -> Iterator[ProviderFinding]:
    """What the heads and the fields of all answers say of limits and times."""
    answers = [answer for answer in (session.plain_answer, session.last_chunk) if answer is not None]
    return _answers.findings(session.headers_seen, answers, session.count_paths, session.known)
