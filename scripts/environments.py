"""Install packages with other pins than the project's into a virtual environment of their own, and run tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.servers import UnavailableError

ROOT = Path(__file__).parents[1]


def environment(home: Path, packages: Sequence[str], *, pins: Path, python: str = sys.executable) -> Path:
    """Return the virtual environment at `home` with `packages` in it, which is made first where it is missing.

    `pins` holds the versions of all that is installed. Raises UnavailableError.
    """
    # Named by what decides the installation, so that an unchanged one is not repeated.
    decisive = (pins.read_text("utf-8"), sys.version, python, *packages)
    if "--editable" in packages:
        decisive += ((ROOT / "pyproject.toml").read_text("utf-8"),)
    made = home / f".installed-{zlib.crc32(chr(0).join(decisive).encode()):08x}"
    if made.exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    print(f"installing {', '.join(packages)} into {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    wanted = ["--quiet", "--constraint", str(pins), *packages]

    def run(*command: str) -> None:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=900.0, env=clean_variables(), check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"{packages[0]} cannot be installed: {error}") from error
        if done.returncode:
            last = "\n".join(done.stderr.splitlines()[-5:])
            raise UnavailableError(f"{packages[0]} cannot be installed with {pins.relative_to(ROOT)}:\n{last}")

    uv, own_python = uv_program() or "uv", str(home / "bin" / "python")
    try:
        run(uv, "venv", "--quiet", "--no-project", "--no-config", "--python", python, str(home))
        run(uv, "pip", "install", "--no-config", "--python", own_python, *wanted)
    except UnavailableError:
        # pip may know an index that uv does not.
        run(python, "-m", "venv", "--clear", str(home))
        run(own_python, "-m", "pip", "install", "--disable-pip-version-check", *wanted)
    made.touch()
    return home


def run_tests(home: Path, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> bool:
    """Run pytest in an environment, and return whether all tests passed; False also where none ran."""
    command = [str(home / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env=clean_variables(variables), check=False).returncode == 0


def print_passed(passed: Mapping[str, bool]) -> int:
    """Print which tests passed, and return the exit code."""
    for name, good in passed.items():
        print(f"{name}: {'passed' if good else 'FAILED'}")
    return int(not all(passed.values()))


def uv_program() -> str | None:
    """Return the path of uv, beside this Python or anywhere on the PATH; None if it is not installed."""
    return shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def clean_variables(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process of another Python: this one's without what ties it to this one."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, **(more or {})}
