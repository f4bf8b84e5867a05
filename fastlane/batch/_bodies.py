"""What a job sends: the body that openai's own method would send for the same arguments, checked at submission."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import isfinite
from typing import Any

import openai
import orjson

from ..compat.json_body import stock_bytes
from ..compat.parsing import json_bytes, with_response_format, with_text_format
from ..errors import ConfigurationError
from ._jobs import NewJob

_MOST_KEY_LETTERS = 512
_MOST_NAMED = 8
# Arguments that are of the call and not of its body. A line of a batch has nowhere to put them.
_OF_THE_CALL = ("extra_headers", "extra_query", "timeout")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    resource: str
    """The client's, by its attributes."""
    needs: tuple[str, ...]


ENDPOINTS: dict[str, _Endpoint] = {
    "/v1/chat/completions": _Endpoint("chat.completions", ("messages", "model")),
    "/v1/responses": _Endpoint("responses", ("model",)),
    "/v1/completions": _Endpoint("completions", ("model", "prompt")),
    "/v1/embeddings": _Endpoint("embeddings", ("input", "model")),
}
"""Those whose answers are understood here, and so may be asked for."""


def new_job(body: Mapping[str, Any], *, key: str, endpoint: str) -> NewJob:
    """A job that sends what `create(**body)` would. Raises ConfigurationError, which quotes nothing of the body."""
    check_key(key)
    if not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
        raise ConfigurationError(f"endpoint expects one of {', '.join(ENDPOINTS)}, got {endpoint!r:.80}")
    if not isinstance(body, Mapping) or not all(isinstance(name, str) for name in body):
        raise ConfigurationError(
            f"the body of a job is a mapping of the arguments of {ENDPOINTS[endpoint].resource}.create(), got "
            f"{type(body).__name__}"
        )
    given = {name: value for name, value in body.items() if not isinstance(value, (openai.NotGiven, openai.Omit))}
    _refuse(given, endpoint)
    line = _bytes_of(given, endpoint)
    return NewJob(key=key, endpoint=endpoint, model=given["model"], body=line, digest=_digest(endpoint, line))


def check_key(key: object) -> None:
    """Raise ConfigurationError for what can be no job's key."""
    expected = f"the key of a job is a text of 1 to {_MOST_KEY_LETTERS} letters"
    if not isinstance(key, str):
        raise ConfigurationError(f"{expected}, got {type(key).__name__}")
    if not 0 < len(key) <= _MOST_KEY_LETTERS:
        raise ConfigurationError(f"{expected}, got one of {len(key)}")
    if "\0" in key or any("\ud800" <= letter <= "\udfff" for letter in key):
        raise ConfigurationError(f"{expected}, got one with a letter that no database keeps (NUL, or half a letter)")


def _refuse(given: Mapping[str, Any], endpoint: str) -> None:
    create = f"{ENDPOINTS[endpoint].resource}.create()"
    if given.get("stream"):
        raise ConfigurationError(f"a job's answer comes as a whole: leave `stream` out of the arguments of {create}")
    for name in _OF_THE_CALL:
        if given.get(name) is not None:
            raise ConfigurationError(
                f"a job is sent as a line of a batch, which has no place for `{name}`: leave it out, or set it on the "
                f"client of the queue"
            )
    for name in ENDPOINTS[endpoint].needs:
        if given.get(name) is None:
            raise ConfigurationError(f"a job for {endpoint} needs `{name}`, as {create} does")
    if not isinstance(given["model"], str) or not given["model"] or "\0" in given["model"]:
        raise ConfigurationError(f"`model` expects the name of a model, got {type(given['model']).__name__}")
    extra = given.get("extra_body")
    if extra is not None and not isinstance(extra, Mapping):
        raise ConfigurationError(f"`extra_body` expects a mapping, got {type(extra).__name__}")
    if extra and ("stream" in extra or "model" in extra):
        raise ConfigurationError("`stream` and `model` are arguments of their own, and nothing for `extra_body`")


def _bytes_of(given: dict[str, Any], endpoint: str) -> bytes:
    names = {**given}
    extra = names.pop("extra_body", None) or {}
    for name in _OF_THE_CALL:
        names.pop(name, None)
    if endpoint == "/v1/embeddings":
        # openai's method asks for another format than its caller, and undoes that in the answer.
        names.setdefault("encoding_format", "float")
    try:
        names = _with_schema(names, endpoint)
    except TypeError:
        wrong = "text_format" if endpoint == "/v1/responses" else "response_format"
        raise ConfigurationError(
            f"`{wrong}` expects a pydantic model or a schema as a mapping, got another class"
        ) from None
    if unknown := names.keys() - _arguments(endpoint):
        named = "`, `".join(f"{name:.60}" for name in sorted(unknown)[:_MOST_NAMED])
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        raise ConfigurationError(
            f"{ENDPOINTS[endpoint].resource}.create() has no argument `{named}`{more}: "
            f"what a provider takes besides openai's own goes into `extra_body`"
        )
    # Plain JSON is sent as it is.
    line = stock_bytes({**names, **extra})
    if line is not None:
        return line
    try:
        body = {**_asked_of_openai(names, endpoint), **_without_omitted(extra)}
        return json_bytes(body)
    except (TypeError, ValueError, RecursionError):
        # Neither is shown what was said of it, which quotes values.
        place = _unwritable(given)
    raise ConfigurationError(
        f"the body of a job is written as JSON, and this cannot be: "
        f"{place or f'what {ENDPOINTS[endpoint].resource}.create() makes of these arguments'}"
    )


@cache
def _arguments(endpoint: str) -> frozenset[str]:
    parameters = inspect.signature(_create(endpoint)).parameters
    return frozenset(parameters) - {"extra_body", *_OF_THE_CALL}


@cache
def _create(endpoint: str) -> Callable[..., Any]:
    """Return openai's own method, on a client that hands back what it would send."""

    class Sent(openai.OpenAI):
        def post(self, path: str, *, body: Any = None, **_: Any) -> Any:
            return body

    resource: Any = Sent(api_key="none", base_url="https://nowhere.invalid/v1", max_retries=0)
    for name in ENDPOINTS[endpoint].resource.split("."):
        resource = getattr(resource, name)
    return resource.create  # type: ignore[no-any-return]


def _asked_of_openai(names: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    return dict(_create(endpoint)(**names))


def _with_schema(names: dict[str, Any], endpoint: str) -> dict[str, Any]:
    """With the schema of a class that is asked for, as openai's `parse()` does."""
    if endpoint == "/v1/chat/completions":
        return with_response_format(names)
    return with_text_format(names) if endpoint == "/v1/responses" else names


def _without_omitted(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if not isinstance(value, (openai.NotGiven, openai.Omit))}


def _digest(endpoint: str, line: bytes) -> bytes:
    """What a body says, however its members were ordered."""
    # By the standard library, which reads whole numbers of any size as they are.
    said = json.loads(line)
    try:
        ordered = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        ordered = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return sha256(endpoint.encode() + b"\n" + ordered).digest()


def _unwritable(value: object, place: str = "", depth: int = 0) -> str | None:
    """Where something is that is no JSON, and of which type: nothing of what it says."""
    if depth > 200:
        return f"{place[:80]}… is nested too deeply, or contains itself"
    if isinstance(value, Mapping):
        for name, member in value.items():
            if not isinstance(name, str):
                return f"{place or 'the body'} has a key of type {type(name).__name__}"
            if found := _unwritable(member, f"{place}.{name}" if place else name, depth + 1):
                return found
        return None
    if isinstance(value, (list, tuple)):
        members: Iterable[tuple[int, object]] = enumerate(value)
        return next(filter(None, (_unwritable(one, f"{place}[{at}]", depth + 1) for at, one in members)), None)
    if isinstance(value, float) and not isfinite(value):
        return f"{place} is no finite number"
    try:
        json_bytes(value)
    except Exception:  # noqa: BLE001 - whatever it is, it cannot be written
        return f"{place} is {'a text with half a letter in it' if isinstance(value, str) else type(value).__name__}"
    return None
