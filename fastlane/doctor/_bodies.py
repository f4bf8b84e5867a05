"""Which forms of request bodies the provider takes: the same call in each form, compared by its input tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import httpx2

from ..records.attempts import Form
from ._findings import MeasuredFact, ProviderFinding, found
from ._model import counted_tokens
from ._session import CHAT, DoctorSession, of_status

ENDPOINTS = (CHAT, "/responses", "/completions")
FORMS: tuple[Form, ...] = tuple(form for form in get_args(Form) if form != "json")

# Characters of one to four bytes, and those that JSON escapes: a server that mangles bodies counts other tokens.
_PROMPT = 'Say yes. Zürich, Ωmega, 東京, 🚄, "quoted", back\\slash, line\nend.'
# These refuse the caller, or everybody at the moment, and say nothing of the body.
_SAYS_NOTHING = frozenset({401, 402, 403, 407, 408, 425, 429})


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Send a call in each form to each endpoint. Where no form is taken and one is unknown, there is no fact."""
    bodies: dict[str, dict[str, Any]] = {
        CHAT: session.body(_PROMPT, 1),
        "/responses": {"model": session.model, "input": _PROMPT, "max_output_tokens": 16, "store": False},
        "/completions": {"model": session.model, "prompt": _PROMPT, "max_tokens": 1},
    }
    for endpoint in ENDPOINTS[:1] if session.settings.quick else ENDPOINTS:
        expected, status = _counted(session, bodies[endpoint], endpoint, "json")
        if status != 200:
            words = f"not for this model: its plain JSON was not answered ({_in_words(status)})"
            yield found(endpoint, words, endpoint == CHAT and "not answered", value={"status": status})
            continue
        outcomes = {form: _judge(expected, *_counted(session, bodies[endpoint], endpoint, form)) for form in FORMS}
        together: dict[str, list[str]] = {}
        for form, (_, words) in outcomes.items():
            together.setdefault(words, []).append(form)
        taken = [form for form, (outcome, _) in outcomes.items() if outcome == "taken"]
        unknown = [form for form, (outcome, _) in outcomes.items() if outcome in ("broken", "undecided")]
        facts = []
        if taken or not unknown:
            note = f"unknown: {', '.join(unknown)}" if unknown else ""
            path = ("encodings", endpoint)
            facts.append(MeasuredFact(path=path, value=["json", *taken], note=note))
        if any(form.startswith("msgpack") for form in taken):
            facts.append(MeasuredFact(path=("media_types", "msgpack"), value=session.msgpack_type))
        words = "; ".join(f"{', '.join(forms)} {words}" for words, forms in together.items())
        value = {form: {"outcome": outcome, "reason": reason} for form, (outcome, reason) in outcomes.items()}
        yield found(endpoint, words, bool(taken) and "can be encoded", value=value, facts=facts)


def _counted(
    session: DoctorSession, body: Mapping[str, Any], endpoint: str, form: Form
) -> tuple[int | None, int | str]:
    """Return the input tokens that the server counted, and the status or the class of an error."""
    try:
        answer = session.ask(body, endpoint, form)
    except httpx2.HTTPError as error:
        return None, type(error).__name__
    return counted_tokens(session, answer.data, endpoint)[0], answer.status


def _judge(expected: int | None, counted: int | None, status: int | str) -> tuple[str, str]:
    """Judge the response to an encoded call beside that to the plain one: the outcome, and the reason."""
    if isinstance(status, str) or status >= 500:  # which may be of that moment
        return "broken", f"broken: {_in_words(status)}"
    if status in _SAYS_NOTHING:
        return "undecided", f"unknown: {_in_words(status)}"
    if status >= 300:
        return "refused", "refused"
    if expected is None or counted is None:
        return "undecided", "unknown: answered without a count of tokens"
    if counted != expected:
        return "misread", f"read otherwise: {counted} tokens, and {expected} as JSON"
    return "taken", "taken"


def _in_words(status: int | str) -> str:
    return f"no answer ({status})" if isinstance(status, str) else of_status(status)
