"""What makes two calls identical, and which calls are deterministic enough to have one answer between them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from fastlane.protocol.endpoints import GENERATING, RESPONSES

# Names of the process's own, so that nothing can be learned of a key, or of a prompt, from what is remembered here.
_SALT = os.urandom(16)

# They tell requests apart, or the clients that send them, and change nothing about the answer. Those of openai's client
# (x-stainless-...) say among other things in which form the application wants the answer, which is for it alone.
_IRRELEVANT = frozenset({b"content-length", b"traceparent", b"tracestate", b"baggage", b"x-request-id",
                         b"x-client-request-id"})  # fmt: skip
_OF_THE_CLIENT = b"x-stainless-"

# A model writes the members of an object in the order in which their schema names them.
_IN_ORDER = frozenset({"functions", "response_format", "text", "tools"})

# Tools that the application runs itself; with any other the provider does something in the world.
_RUN_BY_THE_APPLICATION = frozenset({"function", "custom"})


def why_not(endpoint: str, body: Mapping[str, Any]) -> str | None:
    """Why a call is sent by itself, in one sentence without a word of the prompt; None where its answer can be shared.

    Deterministic is what says so: a `temperature` of 0 or a `seed` (OpenAI's answers are "mostly" the same then:
    https://cookbook.openai.com/examples/reproducible_outputs_with_the_seed_parameter, read 2026-11-22).
    """
    if endpoint not in GENERATING:
        return "answers of this endpoint are not shared"
    temperature = body.get("temperature")
    is_cold = type(temperature) in (int, float) and temperature == 0
    if not is_cold and type(body.get("seed")) is not int:
        return "it is not deterministic: it has neither a temperature of 0 nor a seed"
    if body.get("background"):
        return "the provider works on it in the background and keeps its answer"
    if body.get("conversation") is not None:
        return "its answer becomes a part of a conversation that the provider keeps"
    # OpenAI keeps responses unless they say otherwise, and chat completions only where they say so
    # (https://developers.openai.com/api/reference, `store`, read 2026-11-22).
    if body.get("store", endpoint == RESPONSES) not in (False, None) or (
        endpoint == RESPONSES and body.get("store") is not False
    ):
        return "the provider keeps its answer: store=False says that it need not"
    if body.get("web_search_options") is not None or not _are_run_here(body.get("tools")):
        return "the provider runs tools for it"
    return None


def _are_run_here(tools: Any) -> bool:
    """Whether every tool is one that the application runs itself."""
    if not tools:
        return True
    if not isinstance(tools, list):
        return False
    return all(isinstance(tool, dict) and tool.get("type") in _RUN_BY_THE_APPLICATION for tool in tools)


def canonical(body: bytes) -> bytes:
    """A JSON body with the members of its objects in one order, apart from those inside of schemas and tools.

    `body` is JSON that `stock_bytes` has written: no integer in it is larger than 64 bits.
    """
    members = orjson.loads(body)
    parts = []
    for name in sorted(members):
        value = members[name]
        if type(value) is float and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # 0.0 is 0
        parts.append(orjson.dumps(name))
        parts.append(orjson.dumps(value, option=0 if name in _IN_ORDER else orjson.OPT_SORT_KEYS))
    return b"\n".join(parts)


def key_of(method: str, url: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    """What two calls have in common that are identical to the provider, account included: a keyed digest.

    `headers` are all that the request is sent with, credentials among them; `body` is its JSON before it is encoded in
    any way.
    """
    lines = sorted(
        name + b":" + value
        for name, value in ((name.lower(), value) for name, value in headers)
        if name not in _IRRELEVANT and not name.startswith(_OF_THE_CLIENT)
    )
    # None of these can have a line end in it, nor a colon in a name (RFC 9110, 5): no two lists read the same.
    head = b"\n".join((method.encode(), url.encode(), *lines))
    return hashlib.blake2b(head + b"\n\n" + canonical(body), digest_size=32, key=_SALT).digest()
