"""`fastlane run` and `import fastlane.auto`: unmodified programs, in processes of their own, make fastlane's calls."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from fastlane.emulator import Emulator
from tests.programs import run_python

RUN = ("-m", "fastlane", "run")
ARGUMENTS = "model='fast-1', messages=[{'role': 'user', 'content': 'Name a river.'}]"
CALL = f"from openai import OpenAI\nOpenAI().chat.completions.create({ARGUMENTS})\n"
AZURE = "api_key='azure', azure_endpoint=os.environ['OPENAI_BASE_URL'].removesuffix('/v1'), api_version='2024-10-21'"
ASYNC = f"""
import asyncio, os, openai

async def main():
    async with CLIENT as client:
        await client.chat.completions.create({ARGUMENTS})

asyncio.run(main())
"""
PROCESS = f"""
import multiprocessing, sys
import openai

def call():
    openai.OpenAI().chat.completions.create({ARGUMENTS})

if __name__ == "__main__":
    process = multiprocessing.get_context("METHOD").Process(target=call)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
PROGRAMS = {
    "class": CALL,
    "async class": ASYNC.replace("CLIENT", "openai.AsyncOpenAI()"),
    "Azure": "import os\nfrom openai.lib.azure import AzureOpenAI\n"
    f"AzureOpenAI({AZURE}).chat.completions.create({ARGUMENTS})",
    "module": f"import os, openai\nopenai.base_url = os.environ['OPENAI_BASE_URL'] + '/'\n"
    f"openai.chat.completions.create({ARGUMENTS})",
    "looked for first": f"from importlib.util import find_spec\nassert find_spec('openai')\n{CALL}",
    "fastlane first": f"import fastlane\n{CALL}",
    "subprocess": f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CALL!r}], check=True)",
    **{method: PROCESS.replace("METHOD", method) for method in ("fork", "spawn", "forkserver")},
}


def environment_of(provider: Emulator, **more: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-test", **more}


@pytest.mark.parametrize("name", PROGRAMS)
def test_unmodified_program_makes_fastlane_calls(name: str, provider: Emulator, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAMS[name])
    ran = run_python(*RUN, "app.py", cwd=tmp_path, environment=environment_of(provider))

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert [log.http_version for log in provider.log()] == ["HTTP/2"]


@pytest.mark.parametrize("at", [0, 1])
def test_auto_is_imported_before_or_after_openai(at: int, provider: Emulator, tmp_path: Path) -> None:
    lines = CALL.splitlines()
    lines.insert(at, "import fastlane.auto")
    ran = run_python("-c", "\n".join(lines), cwd=tmp_path, environment=environment_of(provider))

    assert (ran.returncode, ran.stderr) == (0, "")
    assert [log.http_version for log in provider.log()] == ["HTTP/2"]


def test_disabled_run_leaves_the_program_stock(provider: Emulator, tmp_path: Path) -> None:
    program = f"{CALL}import sys\nprint('fastlane' in sys.modules)"
    ran = run_python(*RUN, "-c", program, cwd=tmp_path, environment=environment_of(provider, FASTLANE_DISABLED="true"))

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\n", "")
    assert [log.http_version for log in provider.log()] == ["HTTP/1.1"]


SHOWING = """
import json, os, sys
names = sorted(name for name in sys.modules if name.partition(".")[0] in ("fastlane", "openai"))
print(json.dumps([sys.argv, sys.path, __name__, globals().get("__file__")]))
print(json.dumps([sys.flags.dev_mode, sys.stdin.read(), names]))
print(getattr(sys, "customized", None))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""
TARGETS = {"file": ["app.py"], "module": ["-m", "package"], "folder": ["package"], "code": ["-c", SHOWING]}


@pytest.mark.parametrize(
    ("target", "customized"),
    [
        *((target, "") for target in TARGETS),
        ("file", "import sys; sys.customized = 1"),
        ("code", "raise ImportError('broken')"),
    ],
)
def test_program_is_run_as_python_runs_it(target: str, customized: str, tmp_path: Path) -> None:
    for name in ("app.py", "package/__init__.py", "package/__main__.py", "site/sitecustomize.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(customized if "site" in name else SHOWING if "__init__" not in name else "")
    if not customized:
        (tmp_path / "site/sitecustomize.py").unlink()
    arguments = [*TARGETS[target], "--report", "-m", "x y"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    options: Any = {"cwd": tmp_path, "env": environment, "input": "typed", "capture_output": True, "text": True}
    runs = [
        subprocess.run([sys.executable, "-X", "dev", *run, *arguments], **options, check=False) for run in ([], [*RUN])
    ]

    # `fastlane run` is a Python too, which runs the same `sitecustomize` first.
    plain, ours = [(ran.returncode, ran.stdout, set(ran.stderr.splitlines())) for ran in runs]
    assert plain == ours
    assert plain[0] == 7
    assert json.loads(plain[1].splitlines()[1]) == [True, "typed", []]


def test_command_is_run_with_the_hook(provider: Emulator, tmp_path: Path) -> None:
    for command in ([sys.executable], ["sh", "-c", 'exec "$0" "$@"', sys.executable]):
        ran = run_python(*RUN, *command, "-c", CALL, cwd=tmp_path, environment=environment_of(provider))
        assert (ran.returncode, ran.stderr) == (0, "")

    assert [log.http_version for log in provider.log()] == ["HTTP/2"] * 2


def test_command_is_ended_by_a_closed_pipe(tmp_path: Path) -> None:
    ran = run_python(*RUN, "sh", "-c", "yes | head -n 1", cwd=tmp_path)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "y\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_program_itself(number: signal.Signals, tmp_path: Path) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    with subprocess.Popen(
        [sys.executable, *RUN, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)

    assert process.returncode == -number
    assert ("KeyboardInterrupt" in stderr) is (number is signal.SIGINT)


UNUSABLE = {
    "": "expected a Python file, a directory with a __main__.py, -m MODULE, -c CODE, or a command",
    "-m": "expected a Python file, a directory with a __main__.py, -m MODULE, -c CODE, or a command",
    "--repot app.py": "unknown option '--repot'; options of the program come after TARGET",
    "missing.py": "there is no file 'missing.py'",
    "no-such-command": "cannot run 'no-such-command': No such file or directory; expected a Python file",
    "./notes.txt": "cannot run './notes.txt': Permission denied; expected a Python file",
}


@pytest.mark.parametrize("arguments", UNUSABLE)
def test_unusable_target_is_a_usage_error(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    ran = run_python(*RUN, *shlex.split(arguments), cwd=tmp_path)

    assert (ran.returncode, ran.stdout) == (2, "")
    usage = "usage: fastlane run [--report] TARGET [ARGUMENT]...\nfastlane run: "
    assert ran.stderr.startswith(usage + UNUSABLE[arguments])


def test_isolated_python_is_refused(tmp_path: Path) -> None:
    ran = run_python("-E", "-m", "fastlane", "run", "-c", CALL)

    assert ran.returncode == 2
    assert "Python's options -E, -I and -S" in ran.stderr


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (CALL, ["1 call, 1 answered"]),
        ("print('typed')", ["this process did not import openai"]),
        (PROGRAMS["spawn"], ["1 call, 1 answered", "No call has ended yet."]),
    ],
)
def test_report_says_where_the_time_went(program: str, expected: list[str], provider: Emulator, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(program)
    ran = run_python(*RUN, "--report", "app.py", cwd=tmp_path, environment=environment_of(provider))

    assert (ran.returncode, ran.stderr.count("fastlane run: ")) == (0, len(expected))
    assert all(text in ran.stderr for text in expected)


def test_child_of_a_python_without_fastlane_goes_on(tmp_path: Path) -> None:
    venv.create(tmp_path / "other")
    (site,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (site / "openai.py").write_text("name = 'another openai'")
    other = str(tmp_path / "other/bin/python")
    ran = run_python(*RUN, other, "-c", "import openai; print(openai.name, openai.__spec__.loader)", cwd=tmp_path)

    assert ran.returncode == 0
    assert ran.stdout.startswith("another openai <_frozen_importlib_external.SourceFileLoader")
    assert ran.stderr.startswith(f"fastlane run: openai's clients stay openai's in {other}: ModuleNotFoundError: ")


def test_hook_and_command_import_neither_typer_nor_openai(tmp_path: Path) -> None:
    stub = "import fastlane_run, os, sys; os.execvpe = lambda *_: sys.exit(print(list(sys.modules)))"
    ran = run_python("-c", f"{stub}; fastlane_run.main()", "run", "-c", "pass", cwd=tmp_path)

    assert ran.returncode == 0
    assert not {"fastlane", "openai", "typer"} & set(json.loads(ran.stdout.replace("'", '"')))
