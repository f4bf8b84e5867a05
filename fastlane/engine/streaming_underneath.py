"""Have an answer streamed to us that the application wants whole, so that its first token is seen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..protocol.endpoints import GENERATING, RESPONSES
from ..protocol.request_fields import is_kept
from .call import Call
from .collector import Collector


def streamed(call: Call) -> Call:
    """The call with its answer streamed to us, and with the count of its tokens, if it need not come at once.

    So it does where the application reads it itself or streams it already, where the provider works on it in the
    background or keeps it for later, where its stream would bring something else (audio; the best of several
    completions), and where the provider has refused to stream.
    """
    body = call.body
    if call.endpoint not in GENERATING or call.stream or call.unread or body.get("stream"):
        return call
    if body.get("background") or is_kept(body) or _comes_otherwise(body):
        return call
    if "stream" in call.refused:
        return call
    added: dict[str, Any] = {"stream": True}
    if call.endpoint != RESPONSES and "stream_options" not in body and _takes_usage(call):
        added["stream_options"] = {"include_usage": True}
    streamed_call = call.replaced(
        body={**body, **added},
        changes=(*call.changes, f"{call.streams_for} had the answer streamed underneath"),
        optional=(*call.optional, *added),
    )
    if call.collector is not None:
        return streamed_call
    return streamed_call.replaced(collector=partial(Collector, streamed_call))


def _comes_otherwise(body: Mapping[str, Any]) -> bool:
    modalities = body.get("modalities")
    speaks = body.get("audio") is not None or (isinstance(modalities, list) and "audio" in modalities)
    return speaks or body.get("best_of") not in (None, 1)


def _takes_usage(call: Call) -> bool:
    known = call.facts.parameters.get("stream_options.include_usage") if call.facts is not None else None
    if known is not None and known.value is False:
        return False
    return "stream_options" not in call.refused
