"""Find out whether a server reads a form of body, with requests that no provider can bill."""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ._requests import in_form

if TYPE_CHECKING:
    from .._call import Encode, Form

# A refusal takes one round trip and no model.
TIMEOUT_S = 2.0

# Of an answer to a probe: errors are short, and whatever is long is no refusal.
MOST_ANSWER_BYTES = 65_536

_BROKEN_JSON = b'{"model": '

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


class Judgement(NamedTuple):
    """What a probe found out."""

    outcome: str
    """One of those of a `Verdict`."""
    reason: str


def marker() -> str:
    """A model's name that no provider has, and that can be found again in an answer."""
    return f"fastlane-probe-{secrets.token_hex(6)}"


def unanswerable(endpoint: str, mark: str) -> dict[str, Any]:
    """A body that asks for a model that does not exist, and whose prompt is none: there is nothing to generate from.

    One token at the most, should a server take it all the same.
    """
    if endpoint == "/responses":
        return {"model": mark, "input": {mark: mark}, "max_output_tokens": 16}
    if endpoint == "/completions":
        return {"model": mark, "prompt": {mark: mark}, "max_tokens": 1}
    return {"model": mark, "messages": mark, "max_tokens": 1}


def probe(request: Any, endpoint: str, form: Form, encode: Encode) -> Generator[Any, Answer, Judgement]:
    """The requests to send one after the other, each for its `Answer`; at the end what they have shown.

    `request` is the one that is to be sent in this form: the same address and headers.

    A server that quotes the marker out of an encoded body has read it. One that refuses it is asked the same as plain
    JSON, and something that is no JSON at all: if it says the same of the encoded body as of the plain one, and not
    what it says of what it cannot read, it has read it too.
    """
    mark = marker()
    plain = json.dumps(unanswerable(endpoint, mark)).encode()
    encoded = yield in_form(request, plain, form, encode)
    judgement = _of_the_encoded(encoded, mark, form)
    if judgement is not None:
        return judgement
    twin = yield in_form(request, plain, "json", encode)
    if _same(encoded, twin, mark):
        broken = yield in_form(request, _BROKEN_JSON, "json", encode)
        if broken.status is not None and not _same(encoded, broken, mark):
            return Judgement("accepted", "The server said the same of an encoded body as of its JSON.")
        return Judgement("undecided", "The server says the same of bodies that it can and cannot read.")
    if twin.status is None or twin.status in _SAYS_NOTHING or twin.status >= 500:
        return Judgement("undecided", "The server does not say what is wrong with a body, encoded or not.")
    return Judgement(
        "refused", f"The server answered {encoded.status} to an encoded body, and something else to its JSON."
    )


def _of_the_encoded(answer: Answer, mark: str, form: Form) -> Judgement | None:
    """What the answer to the encoded body says by itself."""
    if answer.status is None:
        return Judgement("broken", f"An encoded body got no answer ({answer.error}).")
    # MessagePack that is not compressed shows the marker to whoever quotes bytes that it has not understood.
    if form != "msgpack" and answer.status < 500 and mark.encode() in answer.body:
        return Judgement("accepted", "The server quoted what an encoded body said.")
    if answer.status < 300:
        return Judgement("refused", "The server answered an encoded body that asked for nothing: it had not read it.")
    if answer.status >= 500:
        return Judgement("broken", f"The server answered {answer.status} to an encoded body.")
    if answer.status in _SAYS_NOTHING:
        return Judgement("undecided", f"The server answered {answer.status}, which says nothing of the body.")
    return None


def _same(one: Answer, other: Answer, mark: str) -> bool:
    return one.status is not None and one.status == other.status and _said(one, mark) == _said(other, mark)


def _said(answer: Answer, mark: str) -> Any:
    """What an answer says, without what differs from one answer to the next."""
    text = answer.body.decode("utf-8", "replace").replace(mark, "")
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
