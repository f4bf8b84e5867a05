from __future__ import annotations

import ssl
from typing import Any

import httpx2
import pytest

from fastlane.emulator import Emulator, ProviderModel, Server
from tests.emulator.requests import chat


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "model", "missing_required_parameter"),
        ({"model": "m"}, "messages", "missing_required_parameter"),
        ({"model": "m", "messages": []}, "messages", "empty_array"),
        ({"model": "m", "messages": "Hello"}, "messages", "invalid_type"),
        (chat(messages=[{"role": "narrator", "content": "Hello"}]), "messages[0].role", "invalid_value"),
        (chat(messages=[{"content": "Hello"}]), "messages[0].role", "missing_required_parameter"),
        (chat(max_tokens=0), "max_tokens", "integer_below_min_value"),
        (chat(max_tokens="many"), "max_tokens", "invalid_type"),
        (chat(n=1000), "n", None),
        (chat(response_format={"type": "xml"}), "response_format.type", "invalid_value"),
        (chat(tools=[{"type": "function"}]), "tools[0].function.name", "missing_required_parameter"),
        (chat(tool_choice="required"), "tool_choice", None),
        (chat(tool_choice={"type": "function", "function": {"name": "gone"}}), "tool_choice", None),
        ({"model": "m", "prompt": ["Hello", {"a": 1}]}, "prompt", "invalid_type"),
        ({"model": "m", "input": {"a": 1}}, "input", "invalid_type"),
    ],
)
def test_invalid_body_is_refused_and_costs_nothing(
    http: httpx2.Client, emulator: Emulator, body: dict[str, Any], param: str, code: str | None
) -> None:
    path = "completions" if "prompt" in body else "responses" if "input" in body else "chat/completions"
    response = http.post(f"/{path}", json=body)
    error, record = response.json()["error"], emulator.log()[0]

    assert response.status_code == 400
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"]
    assert (record.status, record.admitted_ns, record.output_tokens) == (400, None, 0)


@pytest.mark.parametrize("body", [b"", b'{"model": ', b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_body_that_is_no_object_is_a_400(http: httpx2.Client, body: bytes) -> None:
    response = http.post("/chat/completions", content=body, headers={"content-type": "application/json"})

    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    parses = body in (b"[]", b'"x"')
    assert ("must be an object" if parses else "We could not parse the JSON body of your request.") in error["message"]


@pytest.mark.parametrize("path", ["/nothing", "/chat", "/files/none", "/chat/completions/x"])
def test_unknown_path_is_a_404_in_openais_shape(http: httpx2.Client, path: str) -> None:
    response = http.get(path)

    assert response.status_code == 404
    assert response.json()["error"]["message"]


def test_request_without_a_key_is_a_401(emulator: Emulator, trust: ssl.SSLContext) -> None:
    with httpx2.Client(base_url=emulator.base_url, verify=trust) as client:
        response = client.post("/chat/completions", json=chat())

    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.asyncio
async def test_model_that_is_not_served_is_a_404_that_quotes_it() -> None:
    async with Server(model=ProviderModel(models=("served",)), tls=False) as server:
        async with httpx2.AsyncClient(base_url=server.base_url, headers={"authorization": "Bearer any"}) as client:
            response = await client.post("/chat/completions", json=chat())
            listed = (await client.get("/models")).json()
        record = server.log[0]

    assert response.status_code == 404
    assert response.json()["error"] == {
        "message": "The model `some-model` does not exist or you do not have access to it.",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }
    assert (record.admitted_ns, record.output_tokens) == (None, 0)
    assert [model["id"] for model in listed["data"]] == ["served"]


@pytest.mark.parametrize("name", ["output-tokens", "prefill-ms", "token-ms", "draw", "reasoning-tokens"])
@pytest.mark.parametrize("value", ["many", "-1", "nan", ""])
def test_override_that_is_no_number_is_a_400(http: httpx2.Client, name: str, value: str) -> None:
    response = http.post("/chat/completions", json=chat(), headers={f"x-emulator-{name}": value})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == f"x-emulator-{name}"


def test_unknown_fault_is_a_400_that_lists_the_known_ones(http: httpx2.Client) -> None:
    response = http.post("/chat/completions", json=chat(), headers={"x-emulator-fault": "meteor"})

    assert response.status_code == 400
    assert "stall, drop, reset, goaway" in response.json()["error"]["message"]
