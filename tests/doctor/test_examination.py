"""What `fastlane doctor` finds of providers of each kind, in its JSON and in its facts."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fastlane.emulator import Dialect, Emulator, preset
from fastlane.emulator.wire import Wire
from fastlane.plays import RequestEncoding
from fastlane.providers import Fact, ProviderFacts, registered
from tests.doctor.looking import by_name, facts_of, look, run

ENDPOINTS = ("/chat/completions", "/responses", "/completions")


@contextmanager
def emulator(monkeypatch: pytest.MonkeyPatch, dialect: Dialect | None = None, **settings: Any) -> Iterator[Emulator]:
    with Emulator(model=dataclasses.replace(preset("instant"), dialect=dialect or Dialect()), **settings) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[Emulator]:
    """A provider without TLS."""
    with Emulator(model=preset("instant"), tls=False) as running:
        yield running


def test_full_featured_server_yields_all_facts(provider: Emulator, tmp_path: Path) -> None:
    document = look(provider.base_url, quick=False)

    found = by_name(document)
    assert document["model"] == "instant"
    # These depend on durations, which can be notable on a busy machine.
    untimed = [each for each in found.values() if each["looked_at"] not in ("round trip", "chunks")]
    assert [each for each in untimed if each["state"] != "seen"] == []
    assert {each["state"] for each in found.values()} <= {"seen", "notable"}
    facts = facts_of(document, tmp_path)
    assert repr(RequestEncoding(facts=tmp_path / "measured.toml")) == repr(RequestEncoding(facts=facts))
    assert facts.origins == (document["origin"],)
    assert facts.http2 is not None
    assert (facts.http2.value, facts.http2.evidence, facts.http2.source) == (True, "measured", provider.base_url)
    for endpoint in ENDPOINTS:
        assert facts.forms(endpoint) == ("json", "json+gzip", "msgpack", "msgpack+gzip")
        assert facts.usage[endpoint].value is not None
    assert facts.cache.automatic is not None
    assert facts.structured.formats is not None
    assert facts.structured.formats.value == ("json_object", "json_schema")
    assert facts.parameters["max_completion_tokens"].value is True
    for prompt in ("Say yes", "Zürich", "Count from", "about the sea"):
        assert prompt not in json.dumps(document, ensure_ascii=False)


def test_headers_of_rate_limits_are_listed_with_their_values(tmp_path: Path) -> None:
    model = dataclasses.replace(preset("limited"), name="limited")
    with Emulator(model=model, tls=False) as running:
        document = look(running.base_url)

    finding = by_name(document)["rate-limit headers"]
    assert "x-ratelimit-limit-requests: " in finding["seen"]
    assert finding["value"]["x-ratelimit-limit-tokens"]
    headers = facts_of(document, tmp_path).rate_limits.headers
    assert headers is not None
    assert "x-ratelimit-remaining-requests" in (headers.value or ())


def test_examination_without_consent_spends_no_token(provider: Emulator) -> None:
    document = look(provider.base_url, tokens=False)

    left_out = [finding for finding in document["findings"] if finding["state"] == "left out"]
    assert {finding["group"] for finding in left_out} == {
        "the provider",
        "request bodies",
        "streaming",
        "prompt cache",
        "structured outputs",
    }
    assert all("--yes" in finding["seen"] for finding in left_out)
    assert sum(entry.output_tokens or 0 for entry in provider.log()) == 0


@pytest.mark.parametrize(
    ("fault", "outcome", "lasting"),
    [
        ("status=415;only=encoded", "refused", ("json",)),
        ("status=429;only=encoded", "undecided", None),
        ("status=500;only=encoded", "broken", None),
        ("disconnect;only=encoded", "broken", None),
        ("hang;only=encoded", "broken", None),
        ("misparse;only=encoded", "misread", ("json",)),
        ("misparse=all;only=encoded", "misread", ("json",)),
    ],
)
def test_refused_encoded_bodies_are_detected(
    provider: Emulator, fault: str, outcome: str, lasting: tuple[str, ...] | None, tmp_path: Path
) -> None:
    provider.set_faults(fault)

    document = look(provider.base_url, *(["--timeout-s=2"] if "hang" in fault else []))

    forms = by_name(document)["/chat/completions"]["value"]
    assert {each["outcome"] for each in forms.values()} == {outcome}
    assert facts_of(document, tmp_path).forms("/chat/completions") == lasting


@pytest.mark.parametrize(
    ("fault", "looked_at", "seen"),
    [
        ("no_usage", "token counts", "none, although asked for"),
        ("no_usage", "equal prompts", "the answers do not say how many tokens were cached"),
        ("no_done", "end", "not marked by [DONE]"),
    ],
)
def test_missing_stream_part_is_a_notable_finding(provider: Emulator, fault: str, looked_at: str, seen: str) -> None:
    provider.set_faults(fault)

    finding = by_name(look(provider.base_url))[looked_at]

    assert finding["seen"].startswith(seen)
    assert (finding["state"], finding["facts"]) == ("notable", [])


@pytest.mark.parametrize(
    ("fault", "looked_at", "seen"),
    [
        ("status=401", "models", "401: the key was not accepted"),
        ("status=429", "models", "429: too many requests"),
        ("drop", "first call", "ReadError"),
    ],
)
def test_one_failed_probe_does_not_stop_the_others(provider: Emulator, fault: str, looked_at: str, seen: str) -> None:
    provider.set_faults(fault)

    found = by_name(look(provider.base_url, "--model=instant"))

    assert seen in found[looked_at]["seen"]
    assert found["HTTP/2 limits"]["state"] == "seen"
    assert "the stream" in found


def test_missing_model_and_wrong_key_are_distinguished(tmp_path: Path) -> None:
    model = dataclasses.replace(preset("instant"), models=("[red]one[/red]", "two"))
    with Emulator(model=model, tls=False) as running:
        missing = by_name(look(running.base_url))
        wrong = by_name(look(running.base_url, "--model=three"))
        without_key = look(running.base_url, "--model=two", key=False)
        printed = run(running.base_url, "--quick", "--api-key-env=SOME_KEY").stdout

    assert "name one with --model" in missing["the stream"]["seen"]
    assert missing["models"]["seen"] == "2 listed: [red]one[/red], two"
    assert "2 listed: [red]one[/red], two" in printed
    assert "'three' is not one of them" in wrong["models"]["seen"]
    assert wrong["first call"]["seen"] == "404: there is no such model or path"
    assert "--model" in wrong["first call"]["advice"]
    keyless = by_name(without_key)
    assert "a key is needed" in keyless["models"]["seen"]
    assert "it needs a key" in keyless["the stream"]["seen"]
    assert keyless["/chat/completions"]["state"] == "left out"
    assert without_key["facts_toml"] is None or "encodings" not in without_key["facts_toml"]


def test_vllm_dialect_is_reported_in_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dialect = Dialect(
        headers={"server": "uvicorn", "openai-processing-ms": ""},
        owned_by="vllm",
        cached_tokens_path="usage.prompt_cache_hit_tokens",
        structured_outputs=False,
        accepted_encodings=("json", "gzip"),
    )
    with emulator(monkeypatch, dialect, http2=False) as running:
        document = look(running.base_url)

    found = by_name(document)
    facts = facts_of(document, tmp_path)
    assert found["HTTP version"]["seen"] == "HTTP/1.1"
    assert found["what it is"]["value"]["by_its_word"] == "vllm"
    assert found["json_schema"]["seen"] == "taken, but the answer is no JSON object"
    assert facts.http2 is not None
    assert facts.http2.value is False
    assert facts.forms("/chat/completions") == ("json", "json+gzip")
    assert facts.structured.formats is None
    assert (facts.usage["/chat/completions"].value or {})["cached"] == "usage.prompt_cache_hit_tokens"


def documented(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://a.example", checked=date(2026, 11, 22), evidence="documented")


def test_documented_facts_direct_the_examination(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = {"cached": "usage.prompt_cache_hit_tokens", "input": "usage.gone"}
    facts = ProviderFacts.model_validate(
        {
            "slug": "other",
            "usage": {"/chat/completions": documented(usage)},
            "cache": {"minimum_tokens": documented(4_096)},
        }
    )
    dialect = Dialect(cached_tokens_path="usage.prompt_cache_hit_tokens")
    with emulator(monkeypatch, dialect) as running, registered(facts, origins=[running.base_url]):
        document = look(running.base_url)
        prompts = [entry.prompt_tokens or 0 for entry in running.log()]

    measured = facts_of(document, tmp_path).usage["/chat/completions"].value or {}
    assert (measured["cached"], measured["input"]) == ("usage.prompt_cache_hit_tokens", "usage.prompt_tokens")
    assert len([tokens for tokens in prompts if tokens > 4_096]) == 2


def test_far_server_with_narrow_windows_is_described_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = Dialect(initial_window_bytes=32_768, max_concurrent_streams=8)
    with emulator(monkeypatch, dialect, wire=Wire(round_trip_time_s=0.05)) as running:
        found = by_name(look(running.base_url, tokens=False))

    assert found["HTTP/2 limits"]["seen"].startswith("8 requests at once, window 32 KiB per request")
    assert found["HTTP/2 limits"]["state"] == "notable"
    assert min(found["round trip"]["value"]["http_ms"]) >= 50
    assert found["round trip"]["state"] == "notable"
    assert found["a new connection"]["value"]["ms"] >= 50


def test_without_tls_there_is_neither_http2_nor_a_fact_about_it(plain: Emulator) -> None:
    document = look(plain.base_url, "--idle-s=0.2", tokens=False, quick=False)

    found = by_name(document)
    assert found["TLS"]["seen"] == "none: the URL begins with http://"
    assert found["HTTP version"]["seen"] == "HTTP/1.1"
    assert found["idle life"]["value"]["at_least_s"] == 0.2
    assert "http2" not in (document["facts_toml"] or "")


def test_server_that_cannot_be_reached_is_diagnosed(
    provider: Emulator, plain: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_http = look(re.sub("https://.*:", "http://127.0.0.1:", provider.base_url))
    over_https = look(plain.base_url.replace("http:", "https:"))
    provider.set_faults("refuse")
    refused = look(provider.base_url)
    monkeypatch.delenv("SSL_CERT_FILE")
    untrusted = look(provider.base_url)

    assert [each["reached"] for each in (over_http, over_https, refused, untrusted)] == [False] * 4
    assert untrusted["facts_toml"] is None
    assert over_http["findings"][-1]["advice"] == "Does it want https://?"
    assert over_https["findings"][-1]["looked_at"] == "TLS"
    assert "check the port. Does it want http://?" in over_https["findings"][-1]["advice"]
    assert by_name(refused)["models"]["seen"].startswith("RemoteProtocolError")
    assert untrusted["findings"][-1]["looked_at"] == "TLS"
    assert "unable to get local issuer certificate" in untrusted["findings"][-1]["seen"]
    assert "SSL_CERT_FILE" in untrusted["findings"][-1]["advice"]


def test_connection_check_is_skipped_behind_a_proxy(plain: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", plain.base_url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "")

    first, *_ = json.loads(run("http://a.invalid/v1", "--quick", "--json").stdout)["findings"]

    assert first["state"] == "left out"
    assert "proxy" in first["seen"]


def test_unknown_base_path_is_reported_with_advice(plain: Emulator) -> None:
    document = look(plain.base_url.removesuffix("/v1") + "/v2", tokens=False)

    found = by_name(document)
    assert found["models"]["seen"].startswith("404")
    assert "/v1" in found["models"]["advice"]
    assert document["facts_toml"] is None
