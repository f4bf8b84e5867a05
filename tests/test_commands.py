from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from fastlane import __version__
from fastlane.cli import command_line
from tests.programs import run_python


def run_without_typer(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; sys.modules['typer'] = None; from fastlane.cli import main; main()"
    return run_python("-c", program, *arguments)


def run_as_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "fastlane", *arguments)


@pytest.mark.parametrize("run", [run_as_module, run_without_typer])
def test_version_is_printed(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ended = run("--version")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("arguments", [("bench",), ("doctor",), ("live", "--help")])
def test_command_in_a_base_install_names_the_extra(arguments: tuple[str, ...]) -> None:
    ended = run_without_typer(*arguments)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("fastlane: this part of fastlane needs 'typer', which is not installed")
    assert "pip install 'fastlane-llm[cli]'" in ended.stderr


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_in_a_base_install_names_commands_and_extras(arguments: tuple[str, ...]) -> None:
    ended = run_without_typer(*arguments)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "pip install 'fastlane-llm[cli,batch]'" in ended.stdout


@pytest.mark.slow
def test_command_whose_extra_is_missing_is_listed_and_named() -> None:
    program = "import sys; sys.modules['numpy'] = None; from fastlane.cli import main; main()"
    listed, ended = run_python("-c", program, "--help"), run_python("-c", program, "bench", "run")

    assert listed.returncode == 0
    assert "trace" in listed.stdout
    assert "Needs the extra 'bench'" in " ".join(listed.stdout.replace("│", " ").split())
    assert "pip install 'fastlane-llm[bench]'" in ended.stderr


@pytest.mark.parametrize("name", ["batch", "bench", "doctor", "emulator", "trace", "live"])
def test_command_is_the_same_alone_as_among_all(name: str) -> None:
    alone, among_all = (CliRunner().invoke(app, [name, "--help"]) for app in (command_line(name), command_line()))

    assert alone.exit_code == among_all.exit_code == 0
    assert alone.stdout == among_all.stdout


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_all_commands(arguments: list[str]) -> None:
    printed = CliRunner().invoke(command_line(*arguments), arguments).output

    assert all(name in printed for name in ("batch", "bench", "doctor", "emulator", "trace", "live"))


def test_command_that_does_not_exist_is_named() -> None:
    result = CliRunner().invoke(command_line("bnech"), ["bnech"])

    assert result.exit_code == 2
    assert "bnech" in result.stderr


def test_command_imports_only_its_own_package() -> None:
    program = (
        "import sys, fastlane; from fastlane.cli import command_line; command_line('trace'); "
        "others = ('batch', 'bench', 'doctor', 'emulator', 'experiments', 'reports'); "
        "print(*(name for name in others if f'fastlane.{name}' in sys.modules))"
    )

    ended = run_python("-c", program)

    assert (ended.stdout.strip(), ended.stderr) == ("", "")
