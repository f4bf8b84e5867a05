from __future__ import annotations

import ssl

import httpx2
import pytest

from fastlane.emulator import Emulator
from tests.emulator.requests import chat


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": "x"}, "messages"),
        ({"model": "m", "messages": [{"role": "boss"}]}, "messages[0].role"),
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
def test_a_body_that_cannot_be_is_refused_with_the_parameter_at_fault(
    http: httpx2.Client, body: object, param: str
) -> None:
    response = http.post("/chat/completions", json=body)

    assert response.status_code == 400
    assert response.json()["error"].keys() == {"message", "type", "param", "code"}
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_object_is_a_400(http: httpx2.Client, body: bytes) -> None:
    response = http.post("/chat/completions", content=body, headers={"content-type": "application/json"})

    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/nothing", "/chat", "/files/none", "/chat/completions/x"])
def test_an_unknown_path_is_a_404_in_openais_shape(http: httpx2.Client, path: str) -> None:
    response = http.get(path)

    assert response.status_code == 404
    assert response.json()["error"]["message"]


def test_a_request_without_a_key_is_a_401(emulator: Emulator, trust: ssl.SSLContext) -> None:
    with httpx2.Client(base_url=emulator.base_url, verify=trust) as client:
        response = client.post("/chat/completions", json=chat())

    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"


def test_azures_header_is_a_key_too(emulator: Emulator, trust: ssl.SSLContext) -> None:
    with httpx2.Client(base_url=emulator.base_url, verify=trust, headers={"api-key": "any"}) as client:
        assert client.post("/chat/completions", json=chat()).status_code == 200


@pytest.mark.parametrize("name", ["output-tokens", "prefill-ms", "token-ms", "draw", "reasoning-tokens"])
@pytest.mark.parametrize("value", ["many", "-1", "nan", ""])
def test_an_override_that_is_no_number_is_a_400(http: httpx2.Client, name: str, value: str) -> None:
    response = http.post("/chat/completions", json=chat(), headers={f"x-emulator-{name}": value})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == f"x-emulator-{name}"


def test_an_unknown_fault_is_a_400_that_lists_the_known_ones(http: httpx2.Client) -> None:
    response = http.post("/chat/completions", json=chat(), headers={"x-emulator-fault": "meteor"})

    assert response.status_code == 400
    assert "stall, drop, reset, goaway" in response.json()["error"]["message"]


def test_an_answer_carries_the_request_id_of_the_log(http: httpx2.Client, emulator: Emulator) -> None:
    answers = [http.post("/chat/completions", json=chat()), http.get("/nothing")]

    assert [answer.headers["x-request-id"] for answer in answers] == [each.request_id for each in emulator.log()]
