from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from fastlane import Connection
from fastlane.emulator import Emulator, preset
from tests.transport.callers import Caller


def connections(provider: Emulator) -> int:
    return len({entry.connection_id for entry in provider.log()})


# Settings


@pytest.mark.parametrize(
    "settings",
    [
        {"idle_s": 0},
        {"idle_s": 86_400},
        {"ping_s": None},
        {"ping_s": 86_400},
    ],
)
def test_setting_at_its_bound_works(settings: dict[str, Any], make_caller: Any, arguments: dict[str, Any]) -> None:
    with make_caller(**arguments, max_retries=0, only_plays=[Connection(**settings)]) as caller:
        caller.ask(output_tokens=1)
        caller.read(output_tokens=1)


# Protocols


@pytest.fixture(params=[True, False], ids=["TLS", "plain"])
def http1_provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(model=preset("instant"), tls=request.param, http2=False) as provider:
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        yield provider


def test_http1_is_used_if_http2_is_not_offered(make_caller: Any, http1_provider: Emulator) -> None:
    with make_caller(base_url=http1_provider.base_url, api_key="sk-test", max_retries=0) as caller:
        caller.ask(output_tokens=1)
        caller.read(output_tokens=3)

    assert {entry.http_version for entry in http1_provider.log()} == {"HTTP/1.1"}
    assert connections(http1_provider) == 1
    assert [call.connection_reused for call in caller.calls] == [False, True]


def test_http2_required_but_not_offered_raises(make_caller: Any, http1_provider: Emulator) -> None:
    if not http1_provider.base_url.startswith("https"):
        pytest.skip("without TLS nothing is agreed on")
    plays = [Connection(http2="require")]
    with make_caller(base_url=http1_provider.base_url, api_key="k", max_retries=0, only_plays=plays) as caller:
        with pytest.raises(openai.APIConnectionError) as raised:
            caller.ask()

        assert caller.last_call.error == "APIConnectionError"
    assert "does not speak HTTP/2" in str(raised.value.__cause__)


# Sharing


@pytest.mark.parametrize(
    ("settings", "expected"),
    [([{}, {}], 1), ([{}, {"idle_s": 200}, {"max_connections": 3}, {"http2": "never"}], 4)],
    ids=["equal", "different"],
)
def test_clients_with_equal_settings_share_connections(
    arguments: dict[str, Any], provider: Emulator, settings: list[dict[str, Any]], expected: int
) -> None:
    callers = [Caller("sync", **arguments, only_plays=[Connection(**one)]) for one in settings]
    for caller in callers * 2:
        caller.read(output_tokens=1)
        caller.ask(output_tokens=1)
    for caller in callers:
        caller.close()

    assert connections(provider) == expected
