from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fastlane.doctor._examination import Cost, Examination, examine
from fastlane.doctor._findings import ProviderFinding
from fastlane.doctor._report import facts_file
from fastlane.doctor._session import DoctorSettings, target_of
from fastlane.emulator import Dialect, Emulator, preset
from fastlane.emulator.wire import Wire
from fastlane.plays import RequestEncoding
from fastlane.providers import ProviderFacts, load

KEY = "sk-nobody-may-see-this"


def look(url: str, *, tokens: bool = True, **settings: Any) -> Examination:
    given: dict[str, Any] = {"key": KEY, "idle_s": 0, "cache_pause_s": 0, **settings}
    return examine(DoctorSettings(target=target_of(url), **given), allow=lambda _cost, _model: tokens)


def by_name(examination: Examination) -> dict[str, ProviderFinding]:
    return {finding.looked_at: finding for finding in examination.findings}


def facts_of(examination: Examination, tmp_path: Any) -> ProviderFacts:
    text = facts_file(examination)
    assert text is not None
    path = tmp_path / "measured.toml"
    path.write_text(text)
    assert repr(RequestEncoding(facts=path)) == repr(RequestEncoding(facts=load(path)))
    return load(path)


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


@pytest.fixture
def faulty(provider: Emulator) -> Iterator[Emulator]:
    """The embedded provider, whose faults are this test's alone."""
    yield provider
    provider.set_faults()


def test_full_featured_server_yields_all_facts(provider: Emulator, tmp_path: Any) -> None:
    examination = look(provider.base_url)

    found = by_name(examination)
    assert examination.is_reached
    assert examination.model == "instant"
    # These depend on durations, which can be notable on a busy machine.
    untimed = [each for each in found.values() if each.looked_at not in ("round trip", "chunks")]
    assert [each for each in untimed if each.state != "seen"] == []
    assert {each.state for each in found.values()} <= {"seen", "notable"}
    facts = facts_of(examination, tmp_path)
    assert facts.origins == (target_of(provider.base_url).origin,)
    assert facts.http2 is not None
    assert (facts.http2.value, facts.http2.evidence, facts.http2.source) == (True, "measured", provider.base_url)
    for endpoint in ("/chat/completions", "/responses", "/completions"):
        assert facts.forms(endpoint) == ("json", "json+gzip", "msgpack", "msgpack+gzip")
        assert facts.usage[endpoint].value is not None
    assert facts.cache.automatic is not None
    assert facts.structured.formats is not None
    assert facts.structured.formats.value == ("json_object", "json_schema")
    assert facts.parameters["max_completion_tokens"].value is True


def test_neither_the_key_nor_a_prompt_is_in_what_was_found(provider: Emulator) -> None:
    examination = look(provider.base_url)

    shown = repr(examination) + repr([dataclasses.asdict(finding) for finding in examination.findings])
    assert KEY not in shown
    for prompt in ("Say yes", "Zürich", "Count from", "about the sea"):
        assert prompt not in shown


def test_headers_of_rate_limits_are_listed_with_their_values(tmp_path: Any) -> None:
    model = dataclasses.replace(preset("limited"), name="limited")
    with Emulator(model=model, tls=False) as running:
        examination = look(running.base_url, quick=True)

    finding = by_name(examination)["rate-limit headers"]
    assert "x-ratelimit-limit-requests: " in finding.seen
    assert finding.value["x-ratelimit-limit-tokens"]
    headers = facts_of(examination, tmp_path).rate_limits.headers
    assert headers is not None
    assert "x-ratelimit-remaining-requests" in (headers.value or ())


def test_examination_without_consent_spends_no_token(provider: Emulator) -> None:
    asked: list[tuple[Cost, str]] = []

    def refuse(cost: Cost, model: str) -> bool:
        asked.append((cost, model))
        return False

    examination = examine(DoctorSettings(target=target_of(provider.base_url), key=KEY, idle_s=0), allow=refuse)

    assert len(asked) == 1
    assert asked[0][1] == "instant"
    assert asked[0][0].calls > 10
    assert asked[0][0].input_tokens > 2 * 1_024
    left_out = [finding for finding in examination.findings if finding.state == "left out"]
    assert {finding.group for finding in left_out} == {
        "the provider",
        "request bodies",
        "streaming",
        "prompt cache",
        "structured outputs",
    }
    assert all("--yes" in finding.seen for finding in left_out)
    assert sum(entry.output_tokens or 0 for entry in provider.log()) == 0


def test_spent_tokens_stay_within_the_estimate(provider: Emulator) -> None:
    estimates: list[Cost] = []

    def allow(cost: Cost, _model: str) -> bool:
        estimates.append(cost)
        return True

    examine(DoctorSettings(target=target_of(provider.base_url), key=KEY, idle_s=0, cache_pause_s=0), allow=allow)

    (estimate,) = estimates
    spent = [entry for entry in provider.log() if entry.output_tokens]
    assert len(spent) <= estimate.calls
    assert sum(entry.output_tokens or 0 for entry in spent) <= estimate.output_tokens
    assert sum(entry.prompt_tokens or 0 for entry in spent) <= 1.5 * estimate.input_tokens


@pytest.mark.parametrize(
    ("fault", "outcome", "lasting"),
    [
        ("status=400;only=encoded", "refused", ("json",)),
        ("status=415;only=encoded", "refused", ("json",)),
        ("status=422;only=encoded", "refused", ("json",)),
        ("status=429;only=encoded", "undecided", None),
        ("status=500;only=encoded", "broken", None),
        ("disconnect;only=encoded", "broken", None),
        ("hang;only=encoded", "broken", None),
        ("misparse;only=encoded", "misread", ("json",)),
    ],
)
def test_refused_encoded_bodies_are_detected(
    faulty: Emulator, fault: str, outcome: str, lasting: tuple[str, ...] | None, tmp_path: Any
) -> None:
    faulty.set_faults(fault)

    examination = look(faulty.base_url, quick=True, answer_timeout_s=2 if "hang" in fault else 60)

    forms = by_name(examination)["/chat/completions"].value
    assert {each["outcome"] for each in forms.values()} == {outcome}
    assert facts_of(examination, tmp_path).forms("/chat/completions") == lasting


@pytest.mark.parametrize("fault", ["misparse;only=encoded", "misparse=all;only=encoded"])
def test_misread_encoded_body_is_detected_by_token_count(faulty: Emulator, fault: str, tmp_path: Any) -> None:
    faulty.set_faults(fault)

    examination = look(faulty.base_url)

    for endpoint in ("/chat/completions", "/completions", "/responses"):
        forms = by_name(examination)[endpoint].value
        assert {each["outcome"] for each in forms.values()} == {"misread"}
        assert facts_of(examination, tmp_path).forms(endpoint) == ("json",)


@pytest.mark.parametrize(
    ("fault", "looked_at", "seen"),
    [
        ("no_usage", "token counts", "none, although asked for"),
        ("no_usage", "equal prompts", "the answers do not say how many tokens were cached"),
        ("no_done", "end", "not marked by [DONE]"),
    ],
)
def test_missing_stream_part_is_a_notable_finding(faulty: Emulator, fault: str, looked_at: str, seen: str) -> None:
    faulty.set_faults(fault)

    finding = by_name(look(faulty.base_url, quick=True))[looked_at]

    assert finding.seen.startswith(seen)
    assert finding.state == "notable"


@pytest.mark.parametrize(
    ("fault", "looked_at", "seen"),
    [
        ("status=401", "models", "401: the key was not accepted"),
        ("status=429", "models", "429: too many requests"),
        ("drop", "first call", "ReadError"),
    ],
)
def test_one_failed_probe_does_not_stop_the_others(faulty: Emulator, fault: str, looked_at: str, seen: str) -> None:
    faulty.set_faults(fault)

    examination = look(faulty.base_url, quick=True, model="instant")

    found = by_name(examination)
    assert seen in found[looked_at].seen
    assert found["HTTP/2 limits"].state == "seen"
    assert "the stream" in found


def test_server_without_http_response_is_not_reached(faulty: Emulator) -> None:
    faulty.set_faults("refuse")

    examination = look(faulty.base_url, quick=True)

    assert not examination.is_reached
    assert by_name(examination)["models"].seen.startswith("RemoteProtocolError")


def test_missing_model_and_wrong_key_are_distinguished() -> None:
    model = dataclasses.replace(preset("instant"), models=("one", "two"))
    with Emulator(model=model, tls=False) as running:
        missing = by_name(look(running.base_url, quick=True))
        wrong = by_name(look(running.base_url, quick=True, model="three"))
        keyless = by_name(look(running.base_url, quick=True, model="one", key=None))

    assert "name one with --model" in missing["the stream"].seen
    assert missing["models"].seen == "2 listed: one, two"
    assert "'three' is not one of them" in wrong["models"].seen
    assert wrong["first call"].seen == "404: there is no such model or path"
    assert "--model" in wrong["first call"].advice
    assert "a key is needed" in keyless["models"].seen
    assert "it needs a key" in keyless["the stream"].seen


def test_missing_key_gives_no_verdict_on_bodies(provider: Emulator, tmp_path: Any) -> None:
    examination = look(provider.base_url, quick=True, key=None)

    assert by_name(examination)["/chat/completions"].state == "left out"
    assert facts_of(examination, tmp_path).forms("/chat/completions") is None


def test_vllm_dialect_is_reported_in_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    dialect = Dialect(
        headers={"server": "uvicorn", "openai-processing-ms": ""},
        owned_by="vllm",
        cached_tokens_path="usage.prompt_cache_hit_tokens",
        structured_outputs=False,
        accepted_encodings=("json", "gzip"),
    )
    with emulator(monkeypatch, dialect, http2=False) as running:
        examination = look(running.base_url, quick=True)

    found = by_name(examination)
    facts = facts_of(examination, tmp_path)
    assert found["HTTP version"].seen == "HTTP/1.1"
    assert found["what it is"].value["by_its_word"] == "vllm"
    assert found["json_schema"].seen == "taken, but the answer is no JSON object"
    assert facts.http2 is not None
    assert facts.http2.value is False
    assert facts.forms("/chat/completions") == ("json", "json+gzip")
    assert facts.structured.formats is None
    assert (facts.usage["/chat/completions"].value or {})["cached"] == "usage.prompt_cache_hit_tokens"


def test_far_server_with_narrow_windows_is_described_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = Dialect(initial_window_bytes=32_768, max_concurrent_streams=8)
    with emulator(monkeypatch, dialect, wire=Wire(round_trip_time_s=0.05)) as running:
        found = by_name(look(running.base_url, tokens=False, quick=True))

    assert found["HTTP/2 limits"].seen.startswith("8 requests at once, window 32 KiB per request")
    assert found["HTTP/2 limits"].state == "notable"
    assert min(found["round trip"].value["http_ms"]) >= 50
    assert found["round trip"].state == "notable"
    assert found["a new connection"].value["ms"] >= 50


def test_without_tls_there_is_neither_http2_nor_a_fact_about_it(plain: Emulator) -> None:
    examination = look(plain.base_url, tokens=False, quick=True)
    idle = by_name(look(plain.base_url, tokens=False, idle_s=0.2))["idle life"]

    found = by_name(examination)
    assert found["TLS"].seen == "none: the URL begins with http://"
    assert found["HTTP version"].seen == "HTTP/1.1"
    assert not any(fact.path == ("http2",) for finding in examination.findings for fact in finding.facts)
    assert idle.value["at_least_s"] == 0.2


def test_server_that_is_not_trusted_is_not_reached(running_provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    examination = look(running_provider.base_url)

    assert not examination.is_reached
    assert examination.findings[-1].looked_at == "TLS"
    assert "SSL_CERT_FILE" in examination.findings[-1].advice
    assert facts_file(examination) is None


def test_http_and_https_mismatch_is_diagnosed(running_provider: Emulator, plain: Emulator) -> None:
    port = target_of(running_provider.base_url).port

    over_http = look(f"http://127.0.0.1:{port}/v1")
    over_https = look(plain.base_url.replace("http:", "https:"))

    assert not over_http.is_reached
    assert over_http.findings[-1].advice == "Does it want https://?"
    assert not over_https.is_reached
    assert over_https.findings[-1].looked_at == "TLS"
    assert "check the port. Does it want http://?" in over_https.findings[-1].advice


def test_ctrl_c_keeps_what_was_found_by_then(provider: Emulator) -> None:
    def interrupt(_cost: Cost, _model: str) -> bool:
        raise KeyboardInterrupt

    examination = examine(DoctorSettings(target=target_of(provider.base_url), key=KEY, idle_s=0), allow=interrupt)

    assert examination.interrupted
    assert "models" in by_name(examination)


def test_connection_check_is_skipped_behind_a_proxy(plain: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", plain.base_url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "")

    examination = look("http://a.invalid/v1", tokens=False, quick=True)

    assert examination.findings[0].state == "left out"
    assert "proxy" in examination.findings[0].seen


def test_unknown_base_path_is_reported_with_advice(plain: Emulator) -> None:
    examination = look(plain.base_url.removesuffix("/v1") + "/v2", tokens=False, quick=True)

    found = by_name(examination)
    assert found["models"].seen.startswith("404")
    assert "/v1" in found["models"].advice
    assert facts_file(examination) is None
