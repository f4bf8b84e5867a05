"""In which forms the provider takes request bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import httpx2

from ..plays.request_encoding.bodies import Writing, in_form
from ..records.attempts import Form
from ._answers import at_path, count_paths
from ._findings import Group, MeasuredFact, ProviderFinding
from ._form_probe import MOST_ANSWER_BYTES, Answer, probe
from ._session import DoctorSession
from ._words import of_status

if TYPE_CHECKING:
    from ..providers import ProviderFacts

_GROUP: Group = "request bodies"
CHAT = "/chat/completions"
ENDPOINTS = (CHAT, "/responses", "/completions")
FORMS: tuple[Form, ...] = tuple(form for form in get_args(Form) if form != "json")
_MESSAGEPACK = "application/vnd.msgpack"

# Characters of one to four bytes, and those that JSON escapes: what a server that mangles bodies would count otherwise.
PROMPT = 'Say yes. Zürich, Ωmega, 東京, 🚄, "quoted", back\\slash, line\nend.'

_NOT_THERE = (404, 405, 501)

# Whoever answers so has refused the caller, or everybody at the moment, and has said nothing of the body.
_SAYS_NOTHING = frozenset({401, 402, 403, 407, 408, 425, 429})

Outcome = Literal["accepted", "refused", "misread", "broken", "undecided"]
"""What became of a form.

- accepted: the server reads it
- refused: it says that it does not
- misread: it reads something else in it
- broken: it failed or did not answer, which may be of that moment
- undecided: nothing was said of it
"""
_DECIDED = frozenset({"accepted", "refused", "misread"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What was found out of one endpoint's forms: each with the reason, in one sentence."""

    endpoint: str
    forms: Mapping[Form, tuple[Outcome, str]]
    is_there: bool = True
    """Whether the endpoint exists."""

    @property
    def is_broken(self) -> bool:
        """Whether every form makes the server fail."""
        return bool(self.forms) and all(outcome == "broken" for outcome, _ in self.forms.values())


def writing_for(known: ProviderFacts | None) -> Writing:
    """How bodies are written for this provider."""
    media_type = known.media_types.get("msgpack") if known is not None else None
    value = media_type.value if media_type is not None else None
    return Writing(msgpack_type=value or _MESSAGEPACK)


def look_for_free(session: DoctorSession, endpoint: str) -> Iterator[ProviderFinding]:
    """Send bodies that nobody can answer, in each form, and see whether the server has read them."""
    assert session.http is not None
    writing = writing_for(session.known)
    request = httpx2.Request(
        "POST", f"{session.target.base_url}{endpoint}", headers={**session.settings.headers, "Accept": "*/*"}
    )
    outcomes: dict[Form, tuple[Outcome, str]] = {}
    # A model that does not exist is a 404 too: what names none tells whether the endpoint exists.
    is_there = _send(session, in_form(request, b"{}", "json", writing)).status not in _NOT_THERE
    for form in FORMS if is_there else ():
        # Without a model that exists, so that nobody can be billed, whatever the server makes of the rest.
        asked = probe(request, endpoint, None, form, writing)
        answer = _send(session, next(asked))
        try:
            while True:
                answer = _send(session, asked.send(answer))
        except StopIteration as ended:
            outcome, reason = ended.value
            outcomes[form] = ("undecided" if answer.status in _SAYS_NOTHING else outcome, reason)
    found = Outcomes(endpoint=endpoint, forms=outcomes, is_there=is_there)
    session.free_forms[endpoint] = found
    yield judge(found, writing, tokens=False)


def look_with_tokens(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Send a real call in each form, and compare the tokens that the server counted with those of the plain one."""
    writing = writing_for(session.known)
    for endpoint in session.free_forms or (CHAT,):
        free = session.free_forms.get(endpoint)
        if free is not None and (not free.is_there or free.is_broken):
            continue
        yield _calls_at(session, endpoint, free, writing)


def _calls_at(session: DoctorSession, endpoint: str, free: Outcomes | None, writing: Writing) -> ProviderFinding:
    plain = json.dumps(real(session, endpoint)).encode()
    request = httpx2.Request(
        "POST",
        f"{session.target.base_url}{endpoint}",
        headers={**session.settings.headers, "Accept": "application/json"},
    )
    expected, status = _tokens(session, in_form(request, plain, "json", writing), endpoint)
    if status != 200:
        said = status if isinstance(status, str) else of_status(status)
        return ProviderFinding(
            group=_GROUP,
            looked_at=f"{endpoint}, with tokens",
            seen=f"not for this model: its plain JSON was not answered ({said})",
            state="notable" if endpoint == CHAT else "seen",
            value={"status": status},
        )
    outcomes: dict[Form, tuple[Outcome, str]] = {}
    for form in FORMS:
        known = free.forms.get(form) if free is not None else None
        # One that got no answer would not get one now, and waiting for it takes long.
        if known is not None and known[0] == "broken":
            outcomes[form] = known
        else:
            counted, status = _tokens(session, in_form(request, plain, form, writing), endpoint)
            outcomes[form] = compare(expected, counted, status)
    return judge(Outcomes(endpoint=endpoint, forms=outcomes), writing, tokens=True, before=free)


def real(session: DoctorSession, endpoint: str) -> dict[str, Any]:
    """A call of the model that costs as little as can be."""
    assert session.asking is not None
    if endpoint == "/responses":
        return {"model": session.model, "input": PROMPT, "max_output_tokens": 16, "store": False}
    if endpoint == "/completions":
        return {"model": session.model, "prompt": PROMPT, "max_tokens": 1}
    return session.asking.body(PROMPT, 1)


def compare(expected: int | None, counted: int | None, status: int | str) -> tuple[Outcome, str]:
    """What the answer to an encoded call says, beside that to the plain one."""
    if isinstance(status, str):
        return "broken", f"no answer ({status})"
    if status >= 500:
        return "broken", f"answered with {status}"
    if status in _SAYS_NOTHING:
        return "undecided", f"answered with {status}"
    if status >= 300:
        return "refused", f"answered with {status}"
    if expected is None or counted is None:
        return "undecided", "answered without a count of tokens"
    if counted != expected:
        return "misread", f"read otherwise: {counted} tokens, and {expected} as JSON"
    return "accepted", f"read as sent: {counted} tokens"


def judge(outcomes: Outcomes, writing: Writing, *, tokens: bool, before: Outcomes | None = None) -> ProviderFinding:
    """What was found out of an endpoint, in words and as facts. `before` is what was found out without tokens."""
    looked_at = f"{outcomes.endpoint}{', with tokens' if tokens else ''}"
    value = {form: {"outcome": outcome, "reason": reason} for form, (outcome, reason) in outcomes.forms.items()}
    if not outcomes.is_there:
        return ProviderFinding(group=_GROUP, looked_at=looked_at, seen="no such endpoint", value=value)
    taken = [form for form in FORMS if outcomes.forms.get(form, ("undecided", ""))[0] == "accepted"]
    if not tokens and any(outcome == "undecided" for outcome, _ in outcomes.forms.values()):
        advice = "Calls of the model tell more: with a key, --model and --yes." if outcomes.endpoint == CHAT else ""
    elif taken:
        advice = "RequestEncoding() can send these."
    else:
        advice = ""
    return ProviderFinding(
        group=_GROUP,
        looked_at=looked_at,
        seen="; ".join(_in_words(outcomes)),
        advice=advice,
        value=value,
        facts=_facts(outcomes, writing, tokens=tokens, before=before),
    )


def _facts(outcomes: Outcomes, writing: Writing, *, tokens: bool, before: Outcomes | None) -> tuple[MeasuredFact, ...]:
    free: Mapping[Form, tuple[Outcome, str]] = before.forms if before is not None else {}
    # A call that says nothing of a form, such as one too many, leaves standing what was found out before.
    lasting = {
        form: free[form][0] if outcome == "undecided" and form in free else outcome
        for form, (outcome, _) in outcomes.forms.items()
    }
    taken: Sequence[Form] = [form for form in FORMS if lasting[form] == "accepted"]
    open_ones = [form for form in FORMS if lasting[form] not in _DECIDED]
    path = ("encodings", outcomes.endpoint)
    if open_ones and not taken:
        # Nothing but JSON would be read as: the others are refused. Nobody knows that.
        return (
            (MeasuredFact(path=path, value=None),) if any(outcome == "accepted" for outcome, _ in free.values()) else ()
        )
    note = "by calls of the model" if tokens else "by what refusals say, without a call of the model"
    if open_ones:
        note += f"; not to be told: {', '.join(open_ones)}"
    facts = [MeasuredFact(path=path, value=["json", *taken], note=note, is_whole=not open_ones)]
    if any(form.startswith("msgpack") for form in taken):
        facts.append(MeasuredFact(path=("media_types", "msgpack"), value=writing.msgpack_type))
    return tuple(facts)


def _in_words(outcomes: Outcomes) -> Iterator[str]:
    """What became of which forms, those together that have it in common."""
    together: dict[str, list[Form]] = {}
    for form, (outcome, reason) in outcomes.forms.items():
        why = reason.rstrip(".")
        said = {"accepted": "taken", "refused": "refused", "undecided": f"not to be told: {why}", "misread": why}
        together.setdefault(said.get(outcome, f"broken: {why}"), []).append(form)
    for words, forms in together.items():
        yield f"{', '.join(forms)} {words}"


def _send(session: DoctorSession, request: httpx2.Request) -> Answer:
    assert session.http is not None
    request.extensions["timeout"] = httpx2.Timeout(
        session.settings.timeout_s, read=session.settings.probe_timeout_s
    ).as_dict()
    try:
        response = session.http.send(request)
        return Answer(response.status_code, response.content[:MOST_ANSWER_BYTES])
    except httpx2.HTTPError as error:
        return Answer(None, error=type(error).__name__)


def _tokens(session: DoctorSession, request: httpx2.Request, endpoint: str) -> tuple[int | None, int | str]:
    """The input tokens that the server counted, and the status or the class of an error."""
    assert session.http is not None
    settings = session.settings
    request.extensions["timeout"] = httpx2.Timeout(settings.timeout_s, read=settings.answer_timeout_s).as_dict()
    try:
        response = session.http.send(request)
    except httpx2.HTTPError as error:
        return None, type(error).__name__
    try:
        answer: Any = json.loads(response.content)
    except (ValueError, RecursionError):
        return None, response.status_code
    if not isinstance(answer, dict):
        return None, response.status_code
    paths = count_paths(answer, endpoint, session.known)
    if paths:
        session.count_paths.setdefault(endpoint, {}).update(paths)
    return (at_path(answer, paths["input"]) if "input" in paths else None), response.status_code
