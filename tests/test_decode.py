"""Decoded answers and events are the stock client's, field by field, or left to the stock client."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import Any

import openai
import pydantic
import pytest
from hypothesis import given, settings, strategies as st
from openai._models import construct_type
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from fastlane.decode import _decoders, answer_decoder, event_decoder, probes as _seams
from fastlane.decode._proof import same
from fastlane.decode._schema import validator_of
from fastlane.decode._strict import certain
from fastlane.decode._tiers import DecoderTiers, tiers_of_model
from fastlane.decode._types import doubts, holds_huge_integer, told_apart
from tests.fuzz import corpus
from tests.fuzz.differential import TYPES, Differential, difference, known_models, visible_difference

_CHUNK: dict[str, Any] = corpus.CHUNKS[0]


def written(document: Any) -> bytes:
    return json.dumps(document).encode()


def stock(cast_to: Any, data: bytes) -> Any:
    return construct_type(type_=cast_to, value=json.loads(data))


@pytest.mark.parametrize("name", TYPES)
def test_mutated_documents_are_decoded_as_the_stock_client_does_or_left_to_it(name: str) -> None:
    differential = Differential(name, seed=20261120)
    for data in differential.payloads(500):
        assert differential.check(data) is None, data
    assert differential.accepted["strict"] > 20
    assert differential.accepted["built"] > differential.accepted["stock"] * 0.7


def test_the_fuzz_draws_on_every_model_of_the_types() -> None:
    assert known_models() > 250


def test_a_tier_that_leaves_the_repair_out_is_caught_by_the_fuzz() -> None:
    differential = Differential("ChatCompletionChunk", seed=1)
    tiers = differential._tiers
    assert tiers is not None
    differential._tiers = DecoderTiers(tiers.validate, lambda _found, _data: True, tiers.loose)
    found = [differential.check(data) for data in differential.payloads(100)]
    assert any(difference and difference.startswith("strict") for difference in found)


@pytest.mark.parametrize(
    ("cast_to", "document", "event"),
    [
        (ChatCompletionChunk, corpus.CHUNKS[1], True),
        (ChatCompletion, corpus.COMPLETIONS[1], False),
        (CreateEmbeddingResponse, corpus.EMBEDDINGS[0], False),
    ],
)
def test_a_document_as_openai_documents_it_is_decoded_strictly(cast_to: Any, document: Any, event: bool) -> None:
    data = written(document)
    found = tiers_of_model(cast_to, event=event).strict(data)
    assert visible_difference(found, stock(cast_to, data)) is None


def test_extra_fields_are_no_set_fields_where_the_stock_client_constructs_and_are_where_it_validates() -> None:
    document = corpus.CHUNKS[4] | {"extra": 1, "usage": corpus.CHUNKS[4]["usage"] | {"extra": 2}}
    found = event_decoder(ChatCompletionChunk)(written(document))  # type: ignore[misc]
    assert "extra" not in found.model_fields_set
    assert "extra" in found.usage.model_fields_set


@pytest.mark.parametrize("number", ["9007199254740993", "1" + "0" * 308, "-1" + "0" * 30, "NaN", "-0", "1e400"])
def test_numbers_that_a_float_cannot_hold_stay_what_the_stock_client_makes_of_them(number: str) -> None:
    data = written(corpus.EMBEDDINGS[0]).replace(b"0.0123", number.encode())
    found = answer_decoder(CreateEmbeddingResponse)(data)  # type: ignore[misc]
    assert same(found, stock(CreateEmbeddingResponse, data))


def test_an_integer_of_four_hundred_digits_where_pydantic_validates_a_float_is_left_to_the_stock_client() -> None:
    data = written(corpus.COMPLETIONS[2]).replace(b"-9.25", b"1" + b"0" * 400)
    assert holds_huge_integer(data)
    tiers = tiers_of_model(ChatCompletion, event=False)
    assert tiers.validate is not None
    assert tiers.validate(data, strict=True).choices[0].logprobs.content[0].top_logprobs[1].logprob == float("inf")
    assert tiers.strict(data) is None
    assert answer_decoder(ChatCompletion)(data) is None  # type: ignore[misc]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b'"x"', b"{", b"\xff", b'\xef\xbb\xbf{"id":"x"}', "{}".encode("utf-16"), b"[" * 100_000,
        written(_CHUNK | {"error": {"message": "overloaded"}}), written(_CHUNK | {"_fields_set": ["id"]}),
        written(_CHUNK | {"_BaseModel__cls": 1}),
    ],
)  # fmt: skip
def test_what_the_stock_client_has_to_decide_is_left_to_it(data: bytes) -> None:
    decode = event_decoder(ChatCompletionChunk)
    assert decode is not None
    assert decode(data) is None


@pytest.mark.parametrize("empty", [None, "", 0, {}, []])
def test_an_error_that_says_nothing_is_no_error(empty: Any) -> None:
    data = written(_CHUNK | {"error": empty})
    assert same(event_decoder(ChatCompletionChunk)(data), stock(ChatCompletionChunk, data))  # type: ignore[misc]


def test_an_answer_with_an_error_is_an_answer() -> None:
    data = written(corpus.COMPLETIONS[16])
    assert same(answer_decoder(ChatCompletion)(data), stock(ChatCompletion, data))  # type: ignore[misc]


def test_an_event_whose_type_comes_last_or_is_that_of_an_inner_object_is_decoded_all_the_same() -> None:
    decode = event_decoder(ResponseStreamEvent)
    assert decode is not None
    for document in corpus.EVENTS:
        data = written(dict(reversed(document.items())))
        found = decode(data)
        assert found is None or same(found, stock(ResponseStreamEvent, data))
    assert decode(written({"type": "no.such.event"})) is None
    assert decode(b'{"type":"response.output_text.delta","type":"no.such.event"}') is None


def test_a_stream_of_a_dialect_that_strict_validation_refuses_is_built_and_tried_again_later() -> None:
    asked = 0

    def validate(data: bytes, *, strict: bool) -> Any:
        nonlocal asked
        asked += 1
        raise ValueError(data, strict)

    decode = _decoders._learning(DecoderTiers(validate, lambda _found, _data: True, len))
    assert [decode(b"12") for _ in range(100)] == [2] * 100
    assert asked < 10
    decode = _decoders._learning(DecoderTiers(lambda *_, **__: "found", lambda _found, _data: True, lambda _: "built"))
    assert [decode(b"") for _ in range(3)] == ["found"] * 3


def test_only_the_types_that_are_proven_are_decoded() -> None:
    class Own(ChatCompletion):
        pass

    no_answers: list[Any] = [Own, str, object, openai.types.Completion, dict[str, Any], Any, [], ChatCompletionChunk]
    no_events: list[Any] = [Own, ChatCompletion, Response, object, {}]
    assert [answer_decoder(cast_to) for cast_to in no_answers] == [None] * len(no_answers)
    assert [event_decoder(cast_to) for cast_to in no_events] == [None] * len(no_events)


def test_a_class_of_the_applications_own_is_not_kept() -> None:
    class Own(ChatCompletion):
        pass

    assert answer_decoder(Own) is event_decoder(Own) is None
    kept = weakref.ref(Own)
    del Own
    gc.collect()
    assert kept() is None


def test_an_openai_that_builds_objects_otherwise_gets_its_own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastlane.decode import _proof

    def construct(*, value: Any, type_: Any, **_: Any) -> Any:
        made: Any = construct_type(value=value, type_=type_)
        made.__pydantic_fields_set__.add("noted")
        return made

    monkeypatch.setattr(_proof, "construct_type", construct)
    monkeypatch.setattr(_decoders, "_answer_decoders", {})
    monkeypatch.setattr(_decoders, "_event_makers", {})
    monkeypatch.setattr(_seams, "_found", {})
    for cast_to, _, event in TYPES.values():
        assert (event_decoder if event else answer_decoder)(cast_to) is None


def test_many_threads_may_ask_for_the_first_decoder_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decoders, "_answer_decoders", {})
    data, found = written(corpus.COMPLETIONS[1]), []
    ready = threading.Barrier(8)

    def ask() -> None:
        ready.wait()
        decode = answer_decoder(ChatCompletion)
        assert decode is not None
        found.append(decode(data))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(same(one, stock(ChatCompletion, data)) for one in found)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = sorted({*ChatCompletionChunk.model_fields, "x_groq", "role", "error"})


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON), st.sampled_from(corpus.CHUNKS))
def test_whatever_stands_in_the_fields_of_a_chunk_is_what_the_stock_client_has_there(changes: Any, chunk: Any) -> None:
    data = written(chunk | changes)
    found = event_decoder(ChatCompletionChunk)(data)  # type: ignore[misc]
    assert found is None or difference(found, stock(ChatCompletionChunk, data)) is None


class First(openai.BaseModel):
    kind: str
    number: int | None = None


class Second(openai.BaseModel):
    kind: str
    word: str | None = None


class Holder(openai.BaseModel):
    one: First | Second | None = None
    plain: str | float | bool | None = None


def test_a_union_that_no_required_word_tells_apart_is_not_trusted() -> None:
    assert told_apart((First, Second)) is None
    assert doubts(Holder.model_fields["one"].annotation) == {dict}
    assert not doubts(Holder.model_fields["plain"].annotation)
    check = certain(Holder)
    assert check is not None
    assert not check(Holder.model_validate({"one": {"kind": "a"}}))
    assert check(Holder.model_validate({"one": None, "plain": 1.5}))


@pytest.mark.parametrize("cast_to", [ChatCompletion, Response, ChatCompletionChunk])
def test_looking_a_union_up_refuses_what_trying_all_its_members_refuses(cast_to: Any) -> None:
    own, quick = cast_to.__pydantic_validator__, validator_of(cast_to)
    name = cast_to.__name__
    for data in Differential(name, seed=3).payloads(150):
        outcomes = []
        for validator in (own, quick):
            try:
                outcomes.append(validator.validate_json(data))
            except pydantic.ValidationError:
                outcomes.append(None)
        assert difference(*outcomes) is None
