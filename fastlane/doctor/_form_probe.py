"""Find out whether a server reads a form of body, with requests that hold no prompt to answer and to bill."""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..plays.request_encoding.bodies import Writing, gzip, in_form, with_body, write

if TYPE_CHECKING:
    from ..records.attempts import Form

# Of an answer to a probe: errors are short, and whatever is long is no refusal.
MOST_ANSWER_BYTES = 65_536

_BROKEN_JSON = b'{"model": '

# The least that may be asked for, where that is not one.
_FEWEST_TOKENS = {"/responses": 16}

# Whoever answers so has refused the caller, or everybody at the moment, and has said nothing of the body.
_SAYS_NOTHING = frozenset({401, 403, 407, 408, 425, 429})

_STRAYING_KEYS = frozenset({"request_id", "requestId", "id", "created", "timestamp", "trace_id"})


class Answer(NamedTuple):
    """What came back for one request of a probe."""

    status: int | None
    """None where nothing came."""
    body: bytes = b""
    error: str | None = None
    """Class name of what was raised instead."""


class ProbeVerdict(NamedTuple):
    """What the requests of a probe have shown of a form."""

    outcome: Literal["accepted", "refused", "undecided", "broken"]
    reason: str
    """One sentence."""


class _Marks(NamedTuple):
    """Words that nobody else uses, so that an answer that has one of them was told it."""

    model: str
    prompt: str
    limit: str

    @classmethod
    def new(cls) -> _Marks:
        return cls(*(f"fastlane-{what}-{secrets.token_hex(6)}" for what in cls._fields))


def impossible(endpoint: str, model: str, prompt: str, limit: str | int) -> dict[str, Any]:
    """A body that nobody can answer: a role that does not exist, a message that is none, and a limit that is no number.

    With a `model` that does not exist either there is nothing that anybody could bill.
    """
    # Many servers take any role, and would answer; none of them takes a text where a message belongs.
    said = [{"role": "user", "content": "Hello."}, {"role": prompt, "content": "Hello."}, prompt]
    if endpoint == "/responses":
        return {"model": model, "input": said, "max_output_tokens": limit}
    if endpoint == "/completions":
        return {"model": model, "prompt": ["Hello.", {prompt: prompt}], "max_tokens": limit}
    return {"model": model, "messages": said, "max_tokens": limit}


def probe(
    request: Any, endpoint: str, model: str | None, form: Form, writing: Writing
) -> Generator[Any, Answer, ProbeVerdict]:
    """The requests to send one after the other, each for its `Answer`; at the end what they have shown.

    `request` is the one that is to be sent in this form: the same address and headers. `model` is the one that its body
    names.

    All of them are refused by whoever reads them. A server that says what is wrong with the prompt of an encoded body
    has read it. Of any other it is asked whether it says the same of the encoded body as of the JSON, and something
    else of one in the same form that nobody can read; and, where it looked no further than the model or the limit, the
    same again with those that exist. A server that mangles or loses what was encoded misses something else in it than
    in the JSON. (The limit is the fewest tokens in the end, so that one that answers spends next to nothing.)
    """
    marks = _Marks.new()

    def requests(model: str, limit: str | int) -> tuple[Any, Any]:
        plain = json.dumps(impossible(endpoint, model, marks.prompt, limit)).encode()
        return in_form(request, plain, form, writing), in_form(request, plain, "json", writing)

    encoded_request, plain_request = requests(marks.model, marks.limit)
    encoded = yield encoded_request
    judgement = _of_the_encoded(encoded, marks, form)
    if judgement is not None:
        return judgement
    judgement = _of_both(encoded, (yield plain_request), marks)
    if judgement is not None:
        return judgement
    broken = yield _broken(request, form, writing)
    if broken.status is None or broken.status in _SAYS_NOTHING:
        return ProbeVerdict("broken", "The server stopped answering while it was asked what it takes.")
    if _same(encoded, broken, marks):
        return ProbeVerdict("undecided", "The server says the same of bodies that it can and cannot read.")
    for limit in (marks.limit, _FEWEST_TOKENS.get(endpoint, 1)) if model is not None else ():
        if _names(encoded, marks.prompt):
            break
        encoded_request, plain_request = requests(model or "", limit)
        encoded = yield encoded_request
        judgement = _of_the_encoded(encoded, marks, form)
        if judgement is None:
            judgement = _of_both(encoded, (yield plain_request), marks)
        if judgement is not None:
            return judgement
    return ProbeVerdict("accepted", "The server said the same of an encoded body as of its JSON.")


def _broken(request: Any, form: Form, writing: Writing) -> Any:
    """A request with a body in this form that is cut off."""
    body = _BROKEN_JSON
    if form.startswith("msgpack"):
        body = write(b'{"model": ""}', "msgpack", writing)[0][:-1]
    return with_body(request, gzip(body, writing.gzip_level) if form.endswith("gzip") else body, form, writing)


def _of_the_encoded(answer: Answer, marks: _Marks, form: Form) -> ProbeVerdict | None:
    """What the answer to the encoded body says by itself."""
    if answer.status is None:
        return ProbeVerdict("broken", f"An encoded body got no answer ({answer.error}).")
    if answer.status < 300:
        return ProbeVerdict(
            "refused", "The server answered an encoded body that nobody can answer: it had not read it."
        )
    if answer.status >= 500:
        return ProbeVerdict("broken", f"The server answered {answer.status} to an encoded body.")
    if answer.status in _SAYS_NOTHING:
        return ProbeVerdict("broken", f"The server answered {answer.status}, which says nothing of the body.")
    # MessagePack that is not compressed shows its words to whoever quotes bytes that it has not understood.
    if form != "msgpack" and _names(answer, marks.prompt):
        return ProbeVerdict("accepted", "The server said what was wrong with the prompt in an encoded body.")
    return None


def _of_both(encoded: Answer, plain: Answer, marks: _Marks) -> ProbeVerdict | None:
    """What the answers to the encoded body and to its JSON say beside each other; None where they are the same."""
    if plain.status is None or plain.status in _SAYS_NOTHING:
        return ProbeVerdict("broken", "The server stopped answering while it was asked what it takes.")
    if plain.status >= 500:
        return ProbeVerdict("undecided", "The server does not say what is wrong with a body, encoded or not.")
    if plain.status < 300:
        return ProbeVerdict("undecided", "The server answers whatever it is asked.")
    if not _same(encoded, plain, marks):
        reason = f"The server answered {encoded.status} to an encoded body, and something else to its JSON."
        return ProbeVerdict("refused", reason)
    return None


def _names(answer: Answer, mark: str) -> bool:
    return mark.encode() in answer.body


def _same(one: Answer, other: Answer, marks: _Marks) -> bool:
    if one.status is None or one.status != other.status or _said(one) != _said(other):
        return False
    return all(_names(one, mark) == _names(other, mark) for mark in marks)


def _said(answer: Answer) -> Any:
    """What an answer says, without what differs from one answer to the next."""
    text = answer.body.decode("utf-8", "replace")
    try:
        return _without_strays(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _without_strays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_strays(member) for name, member in value.items() if name not in _STRAYING_KEYS}
    if isinstance(value, list):
        return [_without_strays(member) for member in value]
    return value
