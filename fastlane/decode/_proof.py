"""Whether the installed openai and pydantic build objects as the decoders do: asked at first use."""

from __future__ import annotations

import json
from typing import Annotated, Any, Union

import pydantic
import pydantic_core
from openai._models import construct_type
from openai._utils import PropertyInfo
from openai.types import responses

from . import _types as types
from ._decoders import decoder_of_model, decoder_of_union, parsed

# Where parsers of JSON are known to differ.
_TEXTS = (
    '{"a":-0,"b":-0.0,"c":1e400,"d":1e-400,"e":1E+2,"f":123456789012345678901234567890,"g":18446744073709551616}',
    '{"a":1,"b":2,"a":3,"c":{"x":1,"y":2,"x":[]},"d":NaN,"e":-Infinity,"f":true,"g":null}',
    '{"a":"\\u0000\\ud83d\\ude00\\/","b":"\\ud800","c":0.1000000000000000055511151231257827021181583404541015625}',
)
_USAGE = b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"q":1.5,"prompt_tokens_details":null}'
_CHOICE = (
    b'"choices":[{"index":0,"finish_reason":"stop","x":2,"logprobs":{"content":[{"token":"a","logprob":-1,"z":3,'
    b'"top_logprobs":[]}],"refusal":null},"%s":{"content":"a","role":"assistant","refusal":null,"x":{"y":[1]}}}],'
)
_DOCUMENTS = {
    "ChatCompletionChunk": b'{"id":"1","object":"chat.completion.chunk","created":1,"model":"m",'
    + _CHOICE % b"delta" + _USAGE + b',"x_y":{"a":1}}',
    "ChatCompletion": b'{"id":"1","object":"chat.completion","created":1,"model":"m",'
    + _CHOICE % b"message" + _USAGE + b',"error":{"a":1}}',
    "CreateEmbeddingResponse": b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,"x":1,'
    b'"embedding":[0,-0.5,1e-9]}],"usage":{"prompt_tokens":1,"total_tokens":1}}',
    "Response": b'{"id":"1","object":"response","created_at":1,"model":"m","parallel_tool_calls":true,"tools":[],'
    b'"tool_choice":"auto","error":null,"temperature":1,"output":[{"id":"2","type":"message","role":"assistant","x":1,'
    b'"status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"y":2}]}],"z":3}',
    "ResponseTextDeltaEvent": b'{"type":"response.output_text.delta","delta":"a","item_id":"1","content_index":0,'
    b'"output_index":0,"sequence_number":1,"logprobs":[{"token":"a","logprob":-1}],"obfuscation":"b","x":[1]}',
}  # fmt: skip
# What the models do not accept, each where a document has it.
_DEVIATIONS = (
    (b'"created":1', b'"created":"1","service_tier":"none such"'), (b'"index":0', b'"index":null'),
    (b'"delta":"a"', b'"delta":7'), (b"-0.5", b"9007199254740993"), (b'"prompt_tokens":1', b'"prompt_tokens":"1"'),
    (b'"annotations"', b'"remarks"'), (b'"parallel_tool_calls":true,', b""),
)  # fmt: skip


def holds(cast_to: Any, what: str) -> bool:
    """Return whether a decoder gives what `construct_type` gives: for "answers", "events" or the "union" of events."""
    if not pydantic.VERSION.startswith("2.") or not all(_parsed_alike(text) for text in _TEXTS):
        return False
    model = cast_to
    if what == "union":
        decoder_of_union(cast_to)
        # The whole union costs too much to build for a check; two of its members show the same.
        cast_to = Annotated[
            Union[responses.ResponseTextDeltaEvent, responses.ResponseRefusalDeltaEvent],  # noqa: UP007 - openai's form
            PropertyInfo(discriminator="type"),
        ]
        model, decode = responses.ResponseTextDeltaEvent, decoder_of_union(cast_to)
    else:
        decode = decoder_of_model(model, is_event=what == "events")
    document = _DOCUMENTS[model.__name__]
    deviating = document
    for regular, other in _DEVIATIONS:
        deviating = deviating.replace(regular, other)
    return (
        # Plug-ins of pydantic see each validation: theirs is the stock client's order of them.
        type(types.built(model).__pydantic_validator__) is pydantic_core.SchemaValidator
        and all(
            same(decode(each), construct_type(type_=cast_to, value=json.loads(each))) for each in (document, deviating)
        )
    )


def _parsed_alike(text: str) -> bool:
    return repr(parsed(text.encode())) == repr(json.loads(text))


def same(one: Any, other: Any) -> bool:
    """Whether two decoded values are equal in every respect that a caller can see, the order of fields included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, pydantic.BaseModel):
        return (
            one.__pydantic_fields_set__ == other.__pydantic_fields_set__
            and one.__pydantic_private__ == other.__pydantic_private__
            and same(one.__dict__, other.__dict__)
            and same(one.__pydantic_extra__, other.__pydantic_extra__)
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)
