"""Whole answers as openai's typed objects, past those steps of its own way that only look whether they are needed."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from openai._constants import RAW_RESPONSE_HEADER
from openai._models import BaseModel, add_request_id
from openai._streaming import AsyncStream, Stream, extract_stream_chunk_type
from openai._types import NotGiven

from . import _seams

_RAW = RAW_RESPONSE_HEADER.lower()

UNDECODED = object()
"""The answer is one for openai's own way."""


def decode(client: Any, cast_to: Any, options: Any, response: Any) -> Any:
    """The typed object that the stock client makes of a whole answer, or `UNDECODED`."""
    kind: Any = type(client)
    if not _decodes_as_stock(kind) or client._strict_response_validation or _is_raw(client, options):
        return UNDECODED
    # (Classes of an application come and go, and nothing of ours should keep them.)
    if not getattr(cast_to, "__module__", "").startswith("openai."):
        return UNDECODED
    decoder = _decoder(cast_to)
    if decoder is None or "_process_response_data" in client.__dict__:
        return UNDECODED
    content_type = request_id = None
    try:
        for _, name, value in response.headers._list:
            if name == b"content-type":
                if content_type is not None:
                    return UNDECODED
                content_type = value
            elif name == b"x-request-id":
                if request_id is not None:
                    return UNDECODED
                request_id = value.decode("ascii")
        if content_type is None or not content_type.partition(b";")[0].endswith(b"json"):
            return UNDECODED
    except (AttributeError, UnicodeDecodeError):
        return UNDECODED
    answer = decoder(response.content)
    if answer is None:
        return UNDECODED
    if not isinstance(options.post_parser, NotGiven):
        answer = options.post_parser(answer)
    if isinstance(answer, BaseModel):
        add_request_id(answer, request_id)
    return answer


def open_stream(client: Any, stream_cls: Any, options: Any, response: Any) -> Any:
    """The stream that the stock client makes of an answer, or `UNDECODED`."""
    if stream_cls is None or not isinstance(options.post_parser, NotGiven) or _is_raw(client, options):
        return UNDECODED
    if not _seams.holds("openai.Stream", _streams_are_as_expected):
        return UNDECODED
    return stream_cls(cast_to=_event_type(stream_cls), response=response, client=client, options=options)


def _streams_are_as_expected() -> bool:
    parameters = {"self", "cast_to", "response", "client", "options"}
    return all(set(inspect.signature(made.__init__).parameters) == parameters for made in (Stream, AsyncStream))


@functools.lru_cache(maxsize=256)
def _event_type(stream_cls: Any) -> Any:
    return extract_stream_chunk_type(stream_cls)


def _is_raw(client: Any, options: Any) -> bool:
    for headers in (options.headers, client._custom_headers):
        if headers and not isinstance(headers, NotGiven) and any(name.lower() == _RAW for name in headers):
            return True
    return False


@functools.cache
def _decodes_as_stock(client: Any) -> bool:
    owner = next(base for base in client.__mro__ if "_process_response_data" in base.__dict__)
    function = owner.__dict__["_process_response_data"]
    return str(function.__globals__.get("__name__")).startswith("openai.")


@functools.cache
def _decoder(cast_to: Any) -> Any:
    from ._decode import answer_decoder  # with the first answer: what it needs is large

    return answer_decoder(cast_to)
