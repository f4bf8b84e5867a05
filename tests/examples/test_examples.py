"""Every file in examples/ is run as its first lines say, against the emulator."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml  # type: ignore[import-untyped]

import fastlane
from fastlane.emulator import Emulator
from scripts.servers import RedisServer, free_port
from tests.deployment.test_prefork import accepts, environment_of, running, wait_for
from tests.programs import ROOT, printed_by, run_python
from tests.telemetry.otlp_collector import collector
from tests.waiting import until

EXAMPLES = ROOT / "examples"
WITH_FRAMEWORKS = {"langchain_chat.py", "openai_agents.py"}  # tests/frameworks runs these


def test_every_example_is_listed_and_tested() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "compose", "__pycache__")}
    listed = set(re.findall(r"\]\((\S+\.\w+)\)", (EXAMPLES / "README.md").read_text()))
    assert files == listed - {"compose/compose.yaml"}
    assert all(Path(name).stem in Path(__file__).read_text() for name in files)


def test_hello_prints_the_answer_and_its_times(provider: Emulator) -> None:
    printed = printed_by(str(EXAMPLES / "hello.py"), environment=environment_of(provider))
    answer, times = printed.strip().rsplit("\n", 1)
    assert answer
    assert re.fullmatch(r"[\d.]+ s to the first token, [\d.]+ s in all", times)


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_fastapi_app_cancels_upstream_when_the_reader_leaves(server: str, provider: Emulator, tmp_path: Path) -> None:
    address, log = f"127.0.0.1:{(port := free_port())}", tmp_path / "log"
    arguments = {
        "uvicorn": ["--port", str(port)],
        "gunicorn": ["--config", str(EXAMPLES / "gunicorn.conf.py"), "--bind", address],
    }
    command = [sys.executable, "-m", server, *arguments[server], "examples.fastapi_app:app"]
    with running(command, environment_of(provider), log) as process:
        wait_for(lambda: accepts(port), process, log)
        url = f"http://{address}/ask?question=Name+three+rivers."
        assert httpx2.get(url, timeout=60).text

        provider.change(inter_token_s=0.05)
        with httpx2.stream("GET", url, timeout=60) as response:
            next(response.iter_bytes())
        until(lambda: any(each.reset_ns for each in provider.log()))

        provider.set_faults("status=401")
        assert httpx2.get(url, timeout=60).status_code == 502


def test_celery_task_returns_its_summary(provider: Emulator, redis_server: RedisServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**environment_of(provider), "REDIS_URL": redis_server.url}
    worker = ["worker", "--concurrency", "2", "--without-mingle"]
    ask = "from examples.celery_tasks import summarise; print(summarise.delay('The Rhine is long.').get(timeout=60))"
    with running([sys.executable, "-m", "celery", "--app", "examples.celery_tasks", *worker], environment, log):
        done = run_python("-c", ask, environment=environment)
    assert done.returncode == 0, done.stderr + log.read_text()
    assert done.stdout.strip()
    assert len(provider.log()) == 1


def test_lambda_handler_keeps_its_connection(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(provider).items():
        monkeypatch.setenv(name, value)
    module = runpy.run_path(str(EXAMPLES / "lambda_handler.py"))
    with module["client"] as client:
        answers = [module["handler"]({"question": "Name a river."}, None) for _ in range(2)]
        assert all(answer["statusCode"] == 200 and answer["body"] for answer in answers)
        assert client.calls[-1].connection_reused


def test_notebook_ends_with_a_report(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(provider).items():
        monkeypatch.setenv(name, value)
    cells = json.loads((EXAMPLES / "report.ipynb").read_text())["cells"]
    *code, shown = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for cell in code:
        exec(cell, names)
    assert "3 calls" in str(eval(shown, names))
    assert eval(shown, names)._repr_html_()
    names["client"].close()


def test_compose_environment_sends_traces_and_metrics(provider: Emulator, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with collector() as collecting:
        compose = yaml.safe_load((EXAMPLES / "compose/compose.yaml").read_text())["services"]["app"]["environment"]
        address = {"OTEL_EXPORTER_OTLP_ENDPOINT": collecting.url}
        command = [sys.executable, "-m", "uvicorn", "--port", str(port), "examples.fastapi_app:app"]
        with running(command, {**compose, **environment_of(provider), **address}, log) as process:
            wait_for(lambda: accepts(port), process, log)
            assert httpx2.get(f"http://127.0.0.1:{port}/ask?question=Name+three+rivers.", timeout=60).text
            until(lambda: set(collecting.paths) == {"/v1/traces", "/v1/metrics"})


def test_compose_mounts_exist_and_variables_are_known() -> None:
    """Docker itself is not run: tests need no Docker daemon."""
    folder = EXAMPLES / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert all((folder / mount.split(":")[0]).is_file() for mount in services["telemetry"]["volumes"])
    dashboards = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    assert f"{dashboards[0]['options']['path']}:ro" in services["telemetry"]["volumes"][1]
    build = services["app"]["build"]
    assert (folder / build["context"]).samefile(ROOT)
    dockerfile = (ROOT / build["dockerfile"]).read_text()
    copied = [name for line in re.findall(r"^COPY (.*)$", dockerfile, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    fastlane.telemetry.TelemetrySettings(level=services["app"]["environment"]["FASTLANE_TELEMETRY_LEVEL"])
