"""Install packages whose pins differ from the project's into a virtual environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


class InstallationError(RuntimeError):
    """Packages cannot be installed: the message says why."""


def environment(
    home: Path, packages: Sequence[str], *, pins: Path, limit_s: float, variables: Mapping[str, str] | None = None
) -> Path:
    """Return the virtual environment at `home` with `packages` in it, which is made first where it is missing.

    `pins` holds the versions of all that is installed, `variables` what a build is told. Raises InstallationError.
    """
    decisive = pins.read_bytes() + "\0".join((sys.version, *packages)).encode()
    # Named by what decides the installation, so that an unchanged one is not repeated.
    made = home / f".installed-{zlib.crc32(decisive):08x}"
    if made.exists():
        return home
    if home.exists():
        shutil.rmtree(home)
    venv.create(home, with_pip=True)
    what = ", ".join(packages)
    print(f"installing {what} into {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            [*pip, "--constraint", str(pins), *packages],
            capture_output=True,
            text=True,
            timeout=limit_s,
            env={**inherited, **(variables or {})},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InstallationError(f"{what} is not installed within {limit_s:.0f} s") from error
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-5:])
        raise InstallationError(f"{what} cannot be installed with {pins.relative_to(ROOT)}:\n{last}")
    made.touch()
    return home
