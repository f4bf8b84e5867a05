"""openai's code around an attempt is as one of the versions that fastlane's own retry loop was compared with."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from typing import Any

import openai
import pytest
from openai import _base_client

# Digests of the methods that `compat.responses` and `compat.send` replace, from the oldest version to the newest.
# Compared were 2.47.0, 2.54.0, 3.0.0, 3.3.1, 3.12.0, 3.25.0, 3.52.0 and 3.54.0.
KNOWN: dict[str, tuple[str, ...]] = {
    "AsyncAPIClient._process_response": ("f89185ec5aac", "304c58fc4b04", "ef8d5fdee382"),
    "AsyncAPIClient._send_request": ("3cfee40e4991", "d87012e50539"),
    "AsyncAPIClient._sleep_for_retry": ("58141a880f48", "da3bb991e1a5", "d2afaa0040d2", "36562698666b"),
    "AsyncAPIClient.request": ("321c5274d16d", "8cecc2a92793", "d1b0c8e5260c", "f9d470eb9077"),
    "AsyncOpenAI._send_request": ("2388647ca9be", "915bdbebaaf2", "4907410c358f"),
    "AsyncOpenAI._send_with_auth_retry": (
        "2fd575b343c9",
        "8537dc9d5bc8",
        "4dd7c086d44c",
        "f9eea5cd56b5",
        "0009daf3619a",
    ),
    "OpenAI._send_request": ("86598e349fdf", "8be5777441f2", "1e918e570a4a"),
    "OpenAI._send_with_auth_retry": ("45df5c1f6330", "15efaf51b127", "01491d648a3c", "808d2dda7c5e", "3cd2a299361a"),
    "SyncAPIClient._process_response": ("b099a721e9b8", "13bdf0161cfd", "7fdbf3c1a9cd"),
    "SyncAPIClient._send_request": ("f2f374f97446", "9ab9dbc0cbe8"),
    "SyncAPIClient._sleep_for_retry": ("55b38e3f89f1", "3dc2dd95f1d8", "bf380b2e0661", "c3a301071a0b"),
    "SyncAPIClient.request": ("8ad3192324ad", "f65e16e7020c", "98decce8db15", "4cc0b7f3502e"),
}

CLASSES: tuple[Any, ...] = (
    _base_client.SyncAPIClient, _base_client.AsyncAPIClient, openai.OpenAI, openai.AsyncOpenAI,
)  # fmt: skip
METHODS = ("request", "_sleep_for_retry", "_send_request", "_send_with_auth_retry", "_process_response")
# What a version of Python says of a function's text, and not of what it does.
_NOT_COMPARED = ("ctx", "kind", "name", "returns", "type_comment", "type_params")


def methods() -> dict[str, Any]:
    found = {f"{owner.__name__}.{name}": vars(owner).get(name) for owner in CLASSES for name in METHODS}
    return {name: method for name, method in found.items() if method is not None}


def structure(node: Any) -> Any:
    """Return what a function does, the same for all versions of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _NOT_COMPARED)
        return type(node).__name__, sorted(
            (name, structure(value)) for name, value in fields if value not in (None, [])
        )
    return [structure(one) for one in node] if isinstance(node, list) else repr(node)


def digest(source: str) -> str:
    (function,) = ast.parse(textwrap.dedent(source)).body
    return hashlib.sha256(repr(structure(function)).encode()).hexdigest()[:12]


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_method_of_openai_is_one_that_was_compared(name: str) -> None:
    method = methods().get(name)
    if method is None:
        pytest.skip("this version of openai does not have it")
    found = digest(inspect.getsource(inspect.unwrap(method)))

    assert found in KNOWN[name], (
        f"{name} of openai {openai.__version__} is none that fastlane was compared with: read what has changed, follow "
        f"it in compat/responses.py or compat/send.py where it matters, and add {found!r} to KNOWN"
    )


def test_every_method_around_an_attempt_was_compared() -> None:
    assert methods().keys() <= KNOWN.keys()
