"""What a job sends: the body that openai's own method would send for the same arguments, checked at submission."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import openai

from ..compat.parsing import json_bytes, with_response_format, with_text_format
from ..compat.requests import stock_bytes
from ..errors import ConfigurationError
from .jobs import NewJob

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
ENDPOINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    CHAT: ("chat.completions", ("messages", "model")),
    RESPONSES: ("responses", ("model",)),
    "/v1/completions": ("completions", ("model", "prompt")),
    "/v1/embeddings": ("embeddings", ("input", "model")),
}
"""The client's resource for each, and the arguments that its `create()` needs."""

_LONGEST_KEY = 512
_LINE = {"custom_id", "url", "body"}
# Arguments of the call and not of its body. A line of a batch has no place for them.
_OF_THE_CALL = ("extra_headers", "extra_query", "timeout")


def new_job(body: Mapping[str, Any], *, key: str, endpoint: str) -> NewJob:
    """Return a job that sends what `create(**body)` would. Raises ConfigurationError, which quotes nothing of it."""
    check_key(key)
    if not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
        raise ConfigurationError(f"endpoint expects one of {', '.join(ENDPOINTS)}, got {endpoint!r:.80}")
    resource, needed = ENDPOINTS[endpoint]
    create = f"{resource}.create()"
    if not isinstance(body, Mapping) or not all(isinstance(name, str) for name in body):
        raise ConfigurationError(
            f"the body of a job is a mapping of the arguments of {create}, got {type(body).__name__}"
        )
    given = _without_omitted(body)
    if given.get("stream"):
        raise ConfigurationError(f"a job is not streamed: leave `stream` out of the arguments of {create}")
    for name in _OF_THE_CALL:
        if given.pop(name, None) is not None:
            raise ConfigurationError(
                f"a line of a batch has no place for `{name}`: leave it out, or set it on the client of the queue"
            )
    for name in needed:
        if given.get(name) is None:
            raise ConfigurationError(f"a job for {endpoint} needs `{name}`, as {create} does")
    if not isinstance(given["model"], str) or not given["model"] or "\0" in given["model"]:
        raise ConfigurationError(f"`model` expects the name of a model, got {type(given['model']).__name__}")
    line = _line_of(given, endpoint, create)
    return NewJob(key=key, endpoint=endpoint, model=given["model"], body=line, digest=_digest(endpoint, line))


def jobs_in(lines: Iterable[bytes]) -> Iterator[NewJob]:
    """Yield the jobs of a file of OpenAI's batch input, whose `custom_id` is the key of each.

    Raises ConfigurationError, which quotes nothing of a line but its key.
    """
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            raise ConfigurationError(f"line {number}: expected JSON, an object on each line") from None
        if not isinstance(line, dict) or line.get("method", "POST") != "POST" or not line.keys() >= _LINE:
            raise ConfigurationError(
                f'line {number}: expected an object with "custom_id", "method" (POST), "url" and "body"'
            )
        try:
            yield new_job(line["body"], key=line["custom_id"], endpoint=line["url"])
        except ConfigurationError as error:
            raise ConfigurationError(f"line {number}: {error}") from None


def check_key(key: object) -> None:
    """Raise ConfigurationError for what can be no job's key."""
    expected = f"the key of a job is a text of 1 to {_LONGEST_KEY} letters, without NUL and surrogates"
    if not isinstance(key, str):
        raise ConfigurationError(f"{expected}, got {type(key).__name__}")
    if not 0 < len(key) <= _LONGEST_KEY or "\0" in key or any("\ud800" <= letter <= "\udfff" for letter in key):
        raise ConfigurationError(f"{expected}, got another one of {len(key)} letters")


def listed_keys(keys: Iterable[str] | str) -> list[str]:
    """Return one key or several as a list, each once. Raises ConfigurationError."""
    try:
        listed = [keys] if isinstance(keys, str) else list(dict.fromkeys(keys))
    except TypeError:
        raise ConfigurationError(f"keys expects the key of a job, or several, got {type(keys).__name__}") from None
    for key in listed:
        check_key(key)
    return listed


def _without_omitted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if not isinstance(value, (openai.NotGiven, openai.Omit))}


def _line_of(given: dict[str, Any], endpoint: str, create: str) -> bytes:
    names = dict(given)
    extra = names.pop("extra_body", None) or {}
    if not isinstance(extra, Mapping):
        raise ConfigurationError(f"`extra_body` expects a mapping, got {type(extra).__name__}")
    if "stream" in extra or "model" in extra:
        raise ConfigurationError("`stream` and `model` are arguments of their own, and nothing for `extra_body`")
    if endpoint == "/v1/embeddings":
        # openai's method asks for another format than its caller, and decodes that in the answer.
        names.setdefault("encoding_format", "float")
    try:
        names = with_response_format(names) if endpoint == CHAT else names
        names = with_text_format(names) if endpoint == RESPONSES else names
    except TypeError:
        raise ConfigurationError(
            "`response_format` and `text_format` expect a pydantic model or a schema as a mapping, got another class"
        ) from None
    method, parameters = _create(endpoint)
    if unknown := sorted(names.keys() - parameters):
        raise ConfigurationError(
            f"{create} has no argument `{'`, `'.join(name[:60] for name in unknown[:8])}`: what only a provider takes "
            f"goes into `extra_body`"
        )
    # Plain JSON is sent as it is.
    line = stock_bytes({**names, **extra})
    if line is not None:
        return line
    try:
        return json_bytes({**method(**names), **_without_omitted(extra)})
    except (TypeError, ValueError, RecursionError):
        wrong = next((name for name, value in given.items() if not _is_json(value)), "the body")
    # Outside of the handler: the error quotes values.
    raise ConfigurationError(f"the body of a job is written as JSON, and `{wrong[:60]}` cannot be")


def _is_json(value: object) -> bool:
    try:
        json_bytes(value)
    except Exception:  # noqa: BLE001 - whatever it is, it cannot be written
        return False
    return True


@cache
def _create(endpoint: str) -> tuple[Callable[..., Any], frozenset[str]]:
    """Return openai's own method, on a client that returns what it would send, and its parameters."""

    class BodyClient(openai.OpenAI):
        def post(self, path: str, *, body: Any = None, **_: Any) -> Any:
            return body

    resource: Any = BodyClient(api_key="none", base_url="https://nowhere.invalid/v1", max_retries=0)
    for name in ENDPOINTS[endpoint][0].split("."):
        resource = getattr(resource, name)
    return resource.create, frozenset(inspect.signature(resource.create).parameters)


def _digest(endpoint: str, line: bytes) -> bytes:
    """Return a hash of a body that does not depend on the order of its members."""
    ordered = json.dumps(json.loads(line), sort_keys=True)
    return sha256(f"{endpoint}\n{ordered}".encode()).digest()
