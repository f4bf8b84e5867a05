"""Bytes of one JSON document to openai's typed object: strictly, built, or None for openai's own path; equal, always.

Three tiers, and what each costs for a streamed chunk: pydantic-core's strict JSON validation with a repair (about a
twentieth of the stock client), a builder over parsed JSON (about an eighth), and the stock client's own path. Which one
suits is learned: per stream for events, per type and process for whole answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._fork import new_lock
from . import probes as _seams

if TYPE_CHECKING:
    from ._tiers import DecoderTiers, EventUnion

Decoder = Callable[[bytes], Any]
"""From the bytes of one JSON document to the typed object, or None where the stock client has to decide."""

_Made = TypeVar("_Made")

# Documents that are not offered to strict validation after it has refused two in a row. Doubled with every refusal, so
# that a dialect which it never accepts soon costs next to nothing more.
_FEWEST_SKIPPED = 16
_MOST_SKIPPED = 1024

_making = new_lock()
_event_makers: dict[Any, Callable[[], Decoder]] = {}
_answer_decoders: dict[Any, Decoder] = {}


def event_decoder(cast_to: Any) -> Decoder | None:
    """A decoder for one stream of `cast_to` events; None for types that are left to the stock client.

    It learns from the stream, so that another stream needs another one. It returns None where the stock client has to
    decide: no JSON object, an "error" that says something, an unknown type of event. It never raises.
    """
    try:
        make = _event_makers.get(cast_to)
        if make is None:
            make = _made(cast_to, _event_maker, _event_makers)
    except TypeError:  # Not hashable, and none of openai's types.
        return None
    return make() if make is not None else None


def answer_decoder(cast_to: Any) -> Decoder | None:
    """A decoder for whole `cast_to` answers, shared by all calls; None for types that are left to the stock client.

    It sets no `_request_id` and runs no parser of the caller. It returns None where the stock client has to decide, and
    never raises.
    """
    try:
        decoder = _answer_decoders.get(cast_to)
        return decoder if decoder is not None else _made(cast_to, _answer_decoder, _answer_decoders)
    except TypeError:
        return None


def _made(cast_to: Any, make: Callable[[Any], _Made | None], kept: dict[Any, _Made]) -> _Made | None:
    with _making:
        made = make(cast_to)
        # Classes of an application come and go, and nothing here keeps them.
        if made is not None:
            made = kept.setdefault(cast_to, made)
    return made


def _event_maker(cast_to: Any) -> Callable[[], Decoder] | None:
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import ResponseStreamEvent

    if cast_to is ChatCompletionChunk and _holds(cast_to, "events"):
        from ._tiers import tiers_of_model

        tiers = tiers_of_model(cast_to, event=True)
        return lambda: _learning(tiers)
    if cast_to == ResponseStreamEvent and _holds(cast_to, "union"):
        from ._tiers import EventUnion

        union = EventUnion(cast_to)
        return lambda: _learning_by_type(union)
    return None


def _answer_decoder(cast_to: Any) -> Decoder | None:
    from openai.types import CreateEmbeddingResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    if cast_to in (ChatCompletion, Response, CreateEmbeddingResponse) and _holds(cast_to, "answers"):
        from ._tiers import tiers_of_model

        return _learning(tiers_of_model(cast_to, event=False))
    return None


def _holds(cast_to: Any, what: str) -> bool:
    def check() -> bool:
        # Imported here: a private part of openai that has gone is found by this check too.
        from . import _proof

        return _proof.holds(cast_to, what)

    name = "ResponseStreamEvent" if what == "union" else cast_to.__name__
    return _seams.holds(f"openai's construct_type for {name}", check)


def _learning(tiers: DecoderTiers) -> Decoder:
    """Decode strictly while that works; after two documents in a row that it refused, leave it out for a while."""
    validate, repair, loose = tiers
    if validate is None:
        return loose
    skipping = missed = 0

    def decode(data: bytes) -> Any:
        nonlocal skipping, missed
        if skipping:
            skipping -= 1
            return loose(data)
        try:
            found = validate(data, strict=True)
            if repair(found, data):
                missed = 0
                return found
        except Exception:  # noqa: BLE001 - whatever it is, the next tier has the same document before it
            pass
        missed += 1
        if missed > 1:
            skipping = min(_FEWEST_SKIPPED << min(missed - 2, 8), _MOST_SKIPPED)
        return loose(data)

    return decode


def _learning_by_type(union: EventUnion) -> Decoder:
    """The same for a stream of several types of event, each learned by itself."""
    from ._tiers import event_type

    decoders: dict[bytes | None, Decoder] = {}

    def decode(data: bytes) -> Any:
        name = event_type(data)
        one = decoders.get(name)
        if one is None:
            try:
                tiers = union.tiers(name.decode()) if name else None
            except Exception:  # noqa: BLE001 - no name of a type at all
                tiers = None
            if tiers is None:
                return union.loose(data)
            one = decoders[name] = _learning(tiers)
        return one(data)

    return decode
