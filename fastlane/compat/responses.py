"""Make the typed objects and streams of responses, past those steps of openai's that only look if they are needed."""

from __future__ import annotations

import functools
import inspect
from operator import itemgetter
from typing import Any

from openai._constants import RAW_RESPONSE_HEADER
from openai._models import BaseModel, add_request_id
from openai._streaming import AsyncStream, Stream, extract_stream_chunk_type
from openai._types import NotGiven

from ..decode import answer_decoder, probes as _seams
from ..decode.probes import OwnMethods

# By this header a call asks for the answer undecoded.
_RAW = RAW_RESPONSE_HEADER.lower().encode()
_NAME = itemgetter(1)

UNDECODED = object()
"""The answer is one for openai's own way."""


def decode(client: Any, cast_to: Any, options: Any, response: Any) -> Any:
    """The typed object that the stock client makes of a whole answer, or `UNDECODED`."""
    kind: Any = type(client)
    decoding = _decoding(kind)
    if not decoding.are_own or client._strict_response_validation:
        return UNDECODED
    decoder = answer_decoder(cast_to)
    if decoder is None or "_process_response_data" in client.__dict__:
        return UNDECODED
    content_type = request_id = None
    try:
        if _RAW in map(_NAME, response.request.headers._list):
            return UNDECODED
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


def open_stream(cast_to: Any, client: Any, stream_cls: Any, options: Any, response: Any) -> Any:
    """The stream that the stock client makes of an answer, or `UNDECODED`."""
    if stream_cls is None or not isinstance(options.post_parser, NotGiven):
        return UNDECODED
    try:
        if _RAW in map(_NAME, response.request.headers._list):
            return UNDECODED
    except AttributeError:
        return UNDECODED
    # Who asks for the HTTP library's answer gets that.
    if not getattr(cast_to, "__module__", "").startswith(("openai.", "typing", "builtins")):
        return UNDECODED
    if not _seams.holds("openai.Stream()", _streams_are_as_expected):
        return UNDECODED
    return stream_cls(cast_to=_event_type(stream_cls), response=response, client=client, options=options)


def _streams_are_as_expected() -> bool:
    parameters = {"self", "cast_to", "response", "client", "options"}
    return all(set(inspect.signature(made.__init__).parameters) == parameters for made in (Stream, AsyncStream))


@functools.lru_cache(maxsize=256)
def _event_type(stream_cls: Any) -> Any:
    return extract_stream_chunk_type(stream_cls)


@functools.lru_cache(maxsize=64)  # an application's classes come and go
def _decoding(client: Any) -> OwnMethods:
    return OwnMethods(("_process_response_data",), client)
