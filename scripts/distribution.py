"""Find a program of the operating system's distribution, and install its package where it is missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_APT = ("apt-get", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=2", "-q", "-q")
# A package that is installed may want to start its service, on a port that is not ours to take. Where this says no, it
# does not: https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt
_POLICY = Path("/usr/sbin/policy-rc.d")


class UnavailableError(RuntimeError):
    """A program is not installed and cannot be, or does not do its work: the message says why."""


def program(names: Sequence[str], *, package: str, limit_s: float = 300.0) -> str:
    """Return the path of the first program of these that there is, after installing `package` where there is none.

    By apt-get, and only as root. Raises UnavailableError.
    """
    if (found := _found(names)) is not None:
        return found
    if not shutil.which("apt-get"):
        raise UnavailableError(f"no {names[0]} is installed, and there is no apt-get that could install one")
    if os.geteuid() != 0:
        raise UnavailableError(f"no {names[0]} is installed, and only root can: apt-get install {package}")
    _install(names[0], package, time.monotonic() + limit_s)
    if (found := _found(names)) is None:
        raise UnavailableError(f"the package {package} was installed, and has no program of that name")
    return found


def _found(names: Sequence[str]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def _install(name: str, package: str, until: float) -> None:
    install = (*_APT, "install", "--yes", "--no-install-recommends", package)
    with no_services():
        problem = _apt(install, until)
        if problem is not None:  # The lists of packages may be missing, or old.
            problem = _apt((*_APT, "update"), until) or _apt(install, until)
    if problem is not None:
        raise UnavailableError(f"no {name} is installed, and apt-get could not install one: {problem}")


def _apt(command: Sequence[str], until: float) -> str | None:
    """Run apt-get quietly, and return its last words where it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        subprocess.run(
            command,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=max(1.0, until - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        return "it took too long"
    except subprocess.CalledProcessError as error:
        return next(reversed(error.stderr.strip().splitlines()), f"exit code {error.returncode}")
    return None


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """While this lasts, packages that are installed start no service of theirs."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
