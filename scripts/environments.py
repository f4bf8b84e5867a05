"""Install packages whose pins differ from the project's into a virtual environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.distribution import UnavailableError

ROOT = Path(__file__).parents[1]


def environment(
    home: Path,
    packages: Sequence[str],
    *,
    pins: Path,
    limit_s: float,
    python: str = sys.executable,
    variables: Mapping[str, str] | None = None,
    decisive: bytes = b"",
) -> Path:
    """Return the virtual environment at `home` with `packages` in it, which is made first where it is missing.

    `pins` holds the versions of all that is installed, `variables` what a build is told, and `decisive` what else
    decides what is installed. Raises UnavailableError.
    """
    decisive += pins.read_bytes() + "\0".join((sys.version, python, *packages)).encode()
    # Named by what decides the installation, so that an unchanged one is not repeated.
    made = home / f".installed-{zlib.crc32(decisive):08x}"
    if made.exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    print(f"installing {', '.join(packages)} into {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    wanted = ["--quiet", "--constraint", str(pins), *packages]

    def run(*command: str) -> None:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s, env=clean_variables(variables), check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{packages[0]} is not installed within {limit_s:.0f} s") from error
        if done.returncode:
            last = "\n".join(done.stderr.splitlines()[-5:])
            raise UnavailableError(f"{packages[0]} cannot be installed with {pins.relative_to(ROOT)}:\n{last}")

    uv, own_python = uv_program(), str(home / "bin" / "python")
    try:
        if uv is None:
            raise UnavailableError("uv is not installed")
        run(uv, "venv", "--quiet", "--no-project", "--no-config", "--python", python, str(home))
        run(uv, "pip", "install", "--no-config", "--python", own_python, *wanted)
    except UnavailableError:
        # pip may know an index that uv was not told of.
        run(python, "-m", "venv", "--clear", str(home))
        run(own_python, "-m", "pip", "install", "--disable-pip-version-check", *wanted)
    made.touch()
    return home


def uv_program() -> str | None:
    """Return the path of uv, beside this Python or anywhere on the PATH; None where it is not installed."""
    return shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def clean_variables(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process of another Python: this one's without what ties it to this one."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, **(more or {})}
