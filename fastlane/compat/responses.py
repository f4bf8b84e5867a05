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
from .retry import Reply

# By this header a call asks for the answer undecoded.
_RAW = RAW_RESPONSE_HEADER.lower().encode()
_NAME = itemgetter(1)

UNDECODED = object()
"""The answer is one for openai's own way."""


def decode(client: Any, reply: Reply) -> Any:
    """The typed object that the stock client makes of a whole answer, or `UNDECODED`."""
    attempt, response = reply.attempt, reply.response
    if attempt is None or not attempt.is_stock or client._strict_response_validation:
        return UNDECODED
    decoder = answer_decoder(reply.cast_to)
    if decoder is None:
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
    if not isinstance(attempt.options.post_parser, NotGiven):
        answer = attempt.options.post_parser(answer)
    if isinstance(answer, BaseModel):
        add_request_id(answer, request_id)
    return answer


def open_stream(client: Any, reply: Reply, stream_cls: Any) -> Any:
    """The stream that the stock client makes of an answer, or `UNDECODED`."""
    attempt = reply.attempt
    if attempt is None or not attempt.is_stock or stream_cls is None:
        return UNDECODED
    try:
        is_raw = _RAW in map(_NAME, reply.response.request.headers._list)
        if is_raw or not isinstance(attempt.options.post_parser, NotGiven):
            return UNDECODED
    except AttributeError:
        return UNDECODED
    # Who asks for the HTTP library's answer gets that.
    if not getattr(reply.cast_to, "__module__", "").startswith(("openai.", "typing", "builtins")):
        return UNDECODED
    if not _seams.holds("openai.Stream()", _streams_are_as_expected):
        return UNDECODED
    return stream_cls(cast_to=_event_type(stream_cls), response=reply.response, client=client, options=attempt.options)


def _streams_are_as_expected() -> bool:
    parameters = {"self", "cast_to", "response", "client", "options"}
    return all(set(inspect.signature(made.__init__).parameters) == parameters for made in (Stream, AsyncStream))


@functools.lru_cache(maxsize=256)
def _event_type(stream_cls: Any) -> Any:
    return extract_stream_chunk_type(stream_cls)
