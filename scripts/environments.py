"""Install packages whose pins differ from the project's into a virtual environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.distribution import UnavailableError

ROOT = Path(__file__).parents[1]


def environment(
    home: Path,
    packages: Sequence[str],
    *,
    pins: Path,
    limit_s: float,
    variables: Mapping[str, str] | None = None,
    decisive: bytes = b"",
    quick: bool = False,
) -> Path:
    """Return the virtual environment at `home` with `packages` in it, which is made first where it is missing.

    `pins` holds the versions of all that is installed, `variables` what a build is told, and `decisive` what else
    decides what is installed. `quick` leaves it to uv where that is here and reaches an index, which takes a second
    where pip takes a minute. Raises UnavailableError.
    """
    decisive += pins.read_bytes() + "\0".join((sys.version, *packages)).encode()
    # Named by what decides the installation, so that an unchanged one is not repeated.
    made = home / f".installed-{zlib.crc32(decisive):08x}"
    if made.exists():
        return home
    if home.exists():
        shutil.rmtree(home)
    what = ", ".join(packages)
    print(f"installing {what} into {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    wanted = ["--quiet", "--constraint", str(pins), *packages]
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = _Installer(what, limit_s, {**inherited, **(variables or {})}, pins)
    uv = uv_program() if quick else None
    try:
        if uv is None:
            raise UnavailableError("uv is not here")
        run(uv, "venv", "--quiet", "--no-project", "--no-config", "--python", sys.executable, str(home))
        run(uv, "pip", "install", "--no-config", "--python", str(home / "bin" / "python"), *wanted)
    except UnavailableError:
        # pip knows indexes that uv was not told of.
        venv.create(home, clear=True, with_pip=True)
        run(str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", *wanted)
    made.touch()
    return home


def uv_program() -> str | None:
    """The path of uv, beside this Python or anywhere on the PATH; None where it is not installed."""
    return shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


@dataclass(frozen=True, slots=True)
class _Installer:
    what: str
    limit_s: float
    variables: Mapping[str, str]
    pins: Path

    def __call__(self, *command: str) -> None:
        """Run a step of the installation. Raises UnavailableError where it fails."""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=self.limit_s, env=self.variables, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{self.what} is not installed within {self.limit_s:.0f} s") from error
        if done.returncode:
            last = "\n".join(done.stderr.splitlines()[-5:])
            raise UnavailableError(f"{self.what} cannot be installed with {self.pins.relative_to(ROOT)}:\n{last}")
