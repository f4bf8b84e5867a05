from __future__ import annotations

import ssl

import httpx2
import pytest

from fastlane.emulator import Emulator, ProviderModel, Server
from tests.emulator.requests import chat


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        (chat(max_tokens=0), "max_tokens"),
        (chat(max_tokens="many"), "max_tokens"),
        (chat(n=1000), "n"),
        (chat(stop=[1]), "stop"),
        (chat(stream="yes"), "stream"),
        (chat(response_format={"type": "xml"}), "response_format.type"),
        (chat(response_format={"type": "json_schema"}), "response_format.json_schema.schema"),
        (chat(tools=[{"type": "function"}]), "tools[0].function.name"),
        (chat(tools=[1]), "tools[0]"),
        (chat(tool_choice="required"), "tool_choice"),
        (chat(tool_choice={"type": "function", "function": {"name": "gone"}}), "tool_choice"),
    ],
)
def test_invalid_body_is_refused_with_its_parameter(http: httpx2.Client, body: object, param: str) -> None:
    response = http.post("/chat/completions", json=body)

    assert response.status_code == 400
    assert response.json()["error"].keys() == {"message", "type", "param", "code"}
    assert response.json()["error"]["param"] == param


PROMPTS = "a string, array of strings, array of integers, or array of arrays"
SUPPORTED = "Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."


@pytest.mark.parametrize(
    ("path", "body", "message", "param", "code"),
    [
        (
            "/chat/completions",
            {"model": "m", "messages": "Hello"},
            "Invalid type for 'messages': expected an array of objects, but got a string instead.",
            "messages",
            "invalid_type",
        ),
        (
            "/chat/completions",
            {"model": "m", "messages": [{"role": "narrator", "content": "Hello"}]},
            f"Invalid value: 'narrator'. {SUPPORTED}",
            "messages[0].role",
            "invalid_value",
        ),
        (
            "/chat/completions",
            {"model": "m", "messages": [{"content": "Hello"}]},
            "Missing required parameter: 'messages[0].role'.",
            "messages[0].role",
            "missing_required_parameter",
        ),
        (
            "/completions",
            {"model": "m", "prompt": ["Hello", {"a": 1}]},
            f"Invalid type for 'prompt': expected one of {PROMPTS}, but got an array instead.",
            "prompt",
            "invalid_type",
        ),
        (
            "/responses",
            {"model": "m", "input": {"a": 1}},
            "Invalid type for 'input': expected one of a string or array of objects, but got an object instead.",
            "input",
            "invalid_type",
        ),
    ],
)
def test_invalid_prompt_gets_openai_error_and_costs_nothing(
    http: httpx2.Client, emulator: Emulator, path: str, body: object, message: str, param: str, code: str
) -> None:
    response = http.post(path, json=body)
    record = emulator.log()[0]

    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": message,
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }
    assert (record.status, record.admitted_ns, record.output_tokens) == (400, None, 0)


def test_tool_call_of_a_response_has_no_role(http: httpx2.Client) -> None:
    call = {"type": "function_call_output", "call_id": "c", "output": "12"}

    assert http.post("/responses", json={"model": "m", "input": [call]}).status_code == 200


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


def test_answer_carries_the_request_id_of_the_log(http: httpx2.Client, emulator: Emulator) -> None:
    answers = [http.post("/chat/completions", json=chat()), http.get("/nothing")]

    assert [answer.headers["x-request-id"] for answer in answers] == [each.request_id for each in emulator.log()]
