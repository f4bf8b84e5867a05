from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from fastlane.cli import command_line
from fastlane.emulator import STANDARD_TIERS, Emulator, Fault, preset
from fastlane.emulator.wire import Wire
from fastlane.errors import FastlaneError
from tests.emulator.requests import chat
from tests.waiting import until

# Ends a test that waits for ever, and nothing else.
PATIENCE_S = 40


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # An ended process without a wait for it is gone as well.
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and ") Z " in status.read_text()


def get(emulator: Emulator, url: str) -> httpx2.Response:
    context = ssl.create_default_context(cafile=emulator.environment.get("SSL_CERT_FILE"))
    with httpx2.Client(
        http2=True, verify=context, headers={"authorization": "Bearer any"}, timeout=PATIENCE_S
    ) as client:
        return client.post(f"{url}/chat/completions", json=chat())


def test_close_ends_the_process_and_removes_the_certificate() -> None:
    emulator = Emulator(model=preset("instant"))
    authority = emulator.certificate_authority
    assert authority.exists()
    emulator.close()
    emulator.close()

    assert not authority.exists()
    assert emulator._process.returncode == 0
    with pytest.raises(FastlaneError, match="has it been closed"):
        emulator.log()


def test_unreferenced_emulator_ends_its_process() -> None:
    emulator = Emulator(model=preset("instant"))
    process, authority = emulator._process, emulator.certificate_authority
    del emulator

    assert process.wait(PATIENCE_S) == 0
    assert not authority.exists()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
@pytest.mark.slow
def test_emulator_exits_with_its_killed_parent() -> None:
    script = (
        "import sys; from fastlane.emulator import Emulator, preset; e = Emulator(model=preset('instant')); "
        "print(e._process.pid, e.certificate_authority, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout
        pid, authority = parent.stdout.readline().split()
        parent.kill()

    until(lambda: is_gone(int(pid)))
    assert not Path(authority).exists()


def test_base_url_goes_through_wire_and_log_does_not() -> None:
    with Emulator(model=preset("instant"), wire=Wire(round_trip_time_s=0.05)) as emulator:
        assert emulator.base_url != emulator.direct_base_url
        far, near = get(emulator, emulator.base_url), get(emulator, emulator.direct_base_url)
        assert far.elapsed.total_seconds() >= 0.04
        assert far.json()["choices"] == near.json()["choices"]
        assert len(emulator.log()) == 2


def test_without_tls_it_speaks_plain_http1() -> None:
    with Emulator(model=preset("instant"), tls=False) as emulator:
        assert emulator.base_url.startswith("http://")
        assert emulator.environment == {}
        assert get(emulator, emulator.base_url).http_version == "HTTP/1.1"
        assert emulator.log()[0].http_version == "HTTP/1.1"
        with pytest.raises(FastlaneError, match="tls=False"):
            _ = emulator.certificate_authority


def test_without_http2_alpn_offers_http1_alone() -> None:
    with Emulator(model=preset("instant"), http2=False, faults=("status=500;every=2",)) as emulator:
        assert get(emulator, emulator.base_url).http_version == "HTTP/1.1"
        assert get(emulator, emulator.base_url).status_code == 500


@pytest.mark.skipif(not socket.has_ipv6, reason="the system has no IPv6")
def test_ipv6_host_is_bracketed_in_base_url() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("the system has no loopback of IPv6")
    with Emulator(model=preset("instant"), host="::1") as emulator:
        assert emulator.base_url.startswith("https://[::1]:")
        assert get(emulator, emulator.base_url).status_code == 200


def test_control_requests_that_make_no_sense_are_refused() -> None:
    with Emulator(model=preset("instant"), tls=False) as emulator:
        root = emulator.base_url.removesuffix("/v1")
        with httpx2.Client(base_url=f"{root}/emulator", timeout=PATIENCE_S) as client:
            assert client.put("/faults", json=["meteor"]).status_code == 400
            assert client.put("/faults", content=b"{").status_code == 400
            assert client.get("/nothing").status_code == 404
            assert client.put("/faults", json=["refuse;every=2"]).json() == {"faults": ["refuse;every=2"]}
            assert client.post("/forget").status_code == 200
        emulator.forget_prompts()
        emulator.set_faults("status=500", Fault(kind="refuse"))
        emulator.set_faults()
        assert get(emulator, emulator.base_url).status_code == 200


def test_host_that_others_reach_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="other machines can reach it"):
        Emulator(model=preset("instant"), host="0.0.0.0").close()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
def test_unavailable_port_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        Emulator(model=preset("instant")) as first,
        pytest.raises(FastlaneError, match=rf"cannot listen on port {first._port} .*choose another port"),
    ):
        Emulator(model=preset("instant"), port=first._port)

    assert capfd.readouterr().err == ""
    before = signal.getsignal(signal.SIGINT)
    with Emulator(model=preset("instant")) as first:
        result = CliRunner().invoke(command_line("emulator"), ["emulator", "--port", str(first._port)])
    assert signal.getsignal(signal.SIGINT) is before
    assert result.exit_code == 1
    assert result.stderr.startswith("fastlane emulator: the emulator cannot listen on port ")


COMMAND = "import sys; from fastlane.cli import command_line; command_line('emulator')(['emulator', *sys.argv[1:]])"


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.PIPE, text=True)


def test_command_serves_as_its_options_say_until_sigint() -> None:
    settings = {
        "models": '["small", "large"]',
        "prompt_cache": "false",
        "manner": "whitespace;share=0.2",
        "late_share": "0.25",
        "dialect.headers.server": "uvicorn",
        "dialect.accepted_encodings": '["json", "gzip"]',
        "dialect.owned_by": "vllm",
        "dialect.cached_tokens_path": "none",
        "service_tiers.flex.exhausted": "1",
        "batches.duration_s": "2",
    }
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with command("--preset", "instant", "--json", "--http1", "--fault", "status=422;only=encoded", *given) as process:
        assert process.stdout
        printed = json.loads(process.stdout.readline())
        context = ssl.create_default_context(cafile=printed["certificate_authority"])
        with httpx2.Client(
            base_url=printed["base_url"],
            http2=True,
            verify=context,
            headers={"authorization": "Bearer any"},
            timeout=PATIENCE_S,
        ) as client:
            answer = client.post("/chat/completions", json={**chat(), "model": "small"})
            unknown = client.post("/chat/completions", json=chat())
            full = client.post("/chat/completions", json={**chat(), "model": "small", "service_tier": "flex"})
            zipped = {"content-encoding": "gzip", "content-type": "application/json"}
            encoded = client.post("/chat/completions", content=b"x", headers=zipped)
            models = client.get("/models").json()["data"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0

    assert not Path(printed["certificate_authority"]).exists()
    assert (answer.http_version, answer.status_code, answer.headers["server"]) == ("HTTP/1.1", 200, "uvicorn")
    assert "prompt_tokens_details" not in answer.json()["usage"]
    assert [unknown.status_code, full.status_code, encoded.status_code] == [404, 429, 422]
    assert [(model["id"], model["owned_by"]) for model in models] == [("small", "vllm"), ("large", "vllm")]
    shown = printed["settings"]
    assert shown["faults"] == ["status=422;only=encoded"]
    assert (shown["manner"], shown["late_share"], shown["http2"]) == ("whitespace;share=0.2", 0.25, False)
    assert shown["service_tiers"]["flex"] == {**STANDARD_TIERS["flex"].to_json(), "exhausted": 1.0}
    assert shown["batches"]["duration_s"] == 2


@pytest.mark.parametrize(
    ("arguments", "option", "message"),
    [
        (("--fault", "meteor"), "--fault", "unknown fault 'meteor'"),
        (("--set", "manner=rude"), "--set", "unknown manner 'rude'"),
        (("--set", "late_share=2"), "--set", "late_share"),
        (("--set", "rate_limits.rpm=3"), "--set", "rate_limits.rpm"),
        (("--set", "rate_limits.rpm=3"), "--set", "its settings are requests_per_minute, tokens_per_minute"),
        (
            ("--set", "model_rate_limits.small.rpm=3"),
            "--set",
            "its settings are requests_per_minute, tokens_per_minute",
        ),
        (("--set", "concurrency"), "--set", "written NAME=VALUE"),
        (("--set", 'dialect.accepted_encodings=["br"]'), "--set", "accepted_encodings"),
    ],
)
def test_command_names_the_option_that_cannot_be(
    arguments: tuple[str, ...], option: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or the message would be cut into lines.
    monkeypatch.setenv("COLUMNS", "300")
    on_interrupt = signal.getsignal(signal.SIGINT)
    result = CliRunner().invoke(command_line("emulator"), ["emulator", *arguments])

    assert signal.getsignal(signal.SIGINT) is on_interrupt
    assert result.exit_code == 2
    assert option in result.output
    assert message in result.output


def test_command_prints_shell_commands_for_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # For a shell, wherever the certificate is.
    (tmp_path / "a folder").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "a folder"))
    with command("--preset", "instant", "--rtt-ms", "5") as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("curl"):
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    text = "".join(lines)

    (variable,) = [line for line in lines if line.startswith("export SSL_CERT_FILE=")]
    name, path = shlex.split(variable)
    assert name == "export"
    assert path.startswith(f"SSL_CERT_FILE={tmp_path}/a folder/")
    assert shlex.split(lines[-1])[3] == path.removeprefix("SSL_CERT_FILE=")
    assert "direct port " in text


def test_command_lists_the_presets() -> None:
    result = CliRunner().invoke(command_line("emulator"), ["emulator", "--list-presets", "--json"])
    assert "gpt-4.1-nano-rag" in json.loads(result.stdout)
