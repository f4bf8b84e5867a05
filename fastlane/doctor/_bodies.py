"""Which forms of request bodies the provider takes: the same call in each form, compared by its input tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import httpx2

from ..records.attempts import Form
from ._findings import MeasuredFact, ProviderFinding, found
from ._model import at_path, count_paths
from ._session import CHAT, DoctorSession, of_status

if TYPE_CHECKING:
    from ._session import Answer

ENDPOINTS = (CHAT, "/responses", "/completions")
FORMS: tuple[Form, ...] = tuple(form for form in get_args(Form) if form != "json")

# Characters of one to four bytes, and those that JSON escapes: a server that mangles bodies counts other tokens.
_PROMPT = 'Say yes. Zürich, Ωmega, 東京, 🚄, "quoted", back\\slash, line\nend.'

# These refuse the caller, or everybody at the moment, and say nothing of the body.
_SAYS_NOTHING = frozenset({401, 402, 403, 407, 408, 425, 429})

Outcome = Literal["taken", "refused", "misread", "broken", "undecided"]
"""What became of a form.

- taken: the server reads it
- refused: it says that it does not
- misread: it reads something else in it
- broken: it failed or did not answer, which may be of that moment
- undecided: nothing was said of it
"""


def look(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Send a call in each form to each endpoint."""
    for endpoint in ENDPOINTS[:1] if session.settings.quick else ENDPOINTS:
        yield _look_at(session, endpoint)


def _look_at(session: DoctorSession, endpoint: str) -> ProviderFinding:
    body = session.body(_PROMPT, 1)
    if endpoint == "/responses":
        body = {"model": session.model, "input": _PROMPT, "max_output_tokens": 16, "store": False}
    elif endpoint == "/completions":
        body = {"model": session.model, "prompt": _PROMPT, "max_tokens": 1}
    expected, status = _counted(session, body, endpoint, "json")
    if status != 200:
        words = f"not for this model: its plain JSON was not answered ({_in_words(status)})"
        return found(endpoint, words, endpoint == CHAT and "not answered", value={"status": status})
    outcomes = {form: judge_form(expected, *_counted(session, body, endpoint, form)) for form in FORMS}
    return judge(endpoint, outcomes, session.writing.msgpack_type)


def _counted(
    session: DoctorSession, body: Mapping[str, Any], endpoint: str, form: Form
) -> tuple[int | None, int | str]:
    """Return the input tokens that the server counted, and the status or the class of an error."""
    try:
        answer: Answer = session.ask(body, endpoint, form)
    except httpx2.HTTPError as error:
        return None, type(error).__name__
    paths = count_paths(answer.data, endpoint, session.known)
    if paths:
        session.count_paths.setdefault(endpoint, {}).update(paths)
    return (at_path(answer.data, paths["input"]) if "input" in paths else None), answer.status


def judge_form(expected: int | None, counted: int | None, status: int | str) -> tuple[Outcome, str]:
    """Judge the response to an encoded call beside that to the plain one: the outcome, and the reason."""
    if isinstance(status, str) or status >= 500:
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


def judge(endpoint: str, outcomes: Mapping[Form, tuple[Outcome, str]], msgpack_type: str) -> ProviderFinding:
    """Judge the forms of an endpoint. Where no form is taken and one is unknown, there is no fact."""
    together: dict[str, list[Form]] = {}
    for form, (_, words) in outcomes.items():
        together.setdefault(words, []).append(form)
    taken = [form for form, (outcome, _) in outcomes.items() if outcome == "taken"]
    unknown = [form for form, (outcome, _) in outcomes.items() if outcome in ("broken", "undecided")]
    facts = []
    if taken or not unknown:
        note = f"unknown: {', '.join(unknown)}" if unknown else ""
        path = ("encodings", endpoint)
        facts.append(MeasuredFact(path=path, value=["json", *taken], note=note, is_whole=not unknown))
    if any(form.startswith("msgpack") for form in taken):
        facts.append(MeasuredFact(path=("media_types", "msgpack"), value=msgpack_type))
    return found(
        endpoint,
        "; ".join(f"{', '.join(forms)} {words}" for words, forms in together.items()),
        bool(taken) and "can be encoded",
        value={form: {"outcome": outcome, "reason": words} for form, (outcome, words) in outcomes.items()},
        facts=facts,
    )


def _in_words(status: int | str) -> str:
    return f"no answer ({status})" if isinstance(status, str) else of_status(status)
