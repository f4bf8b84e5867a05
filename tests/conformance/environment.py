"""Where openai's tests are run: for each release a thin layer over this environment, and the release's sources."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from scripts.servers import free_port
from tests.conformance.suite import HERE, SuiteError

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
# The mock server that openai's own repository runs its tests against.
_MOCK_SERVER = "@stdy/cli@0.22.2"
# Seconds for it to read an API description of three megabytes on a busy machine.
_MOCK_START_S = 120


def installed_openai() -> str:
    """The release that the project's own environment has."""
    return version("openai")


@contextmanager
def held(work: Path) -> Iterator[None]:
    """Have `work` alone: another run would write over the same files. Raises SuiteError."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "held").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SuiteError(
                f"another run is using {work}: wait for it, or name another directory with --work"
            ) from None
        yield


def python_with(release: str, work: Path) -> Path:
    """An interpreter with a release of openai and what its tests need, the rest from here. Raises SuiteError.

    Made once. Nothing has to be resolved, because all is pinned, apart from what a release of openai needs itself.
    """
    shared = sysconfig.get_paths()["purelib"]
    lists = [HERE / "requirements.txt", *([HERE / "requirements-2.txt"] if release.startswith("2.") else [])]
    made_of = "\n".join([release, installed_openai(), platform.python_version(), *(file.read_text() for file in lists)])
    environment = work / f"venv-{release}-{_short(shared)}"
    python = environment / "bin" / "python"
    stamp = environment / f"installed-{_short(made_of)}"
    if not stamp.exists():
        _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(environment)])
        packages = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        # Behind its own packages, so that those are found first.
        (packages / "shared.pth").write_text(f"{shared}\n")
        pip = [*_PIP, "--python", str(python), "install", "--quiet", "--no-compile"]
        _run([*pip, "--no-deps", *(f"--requirement={file}" for file in lists)])
        if release != installed_openai():
            _run([*pip, f"openai=={release}"])
        stamp.touch()
    return python


def source_of(release: str, python: Path, work: Path, snapshots: Path | None) -> Path:
    """A release's source distribution, which carries its tests; with recorded streams, where there are any."""
    source = work / f"openai-{release}"
    if not (source / "tests").is_dir():
        with tempfile.TemporaryDirectory(dir=work) as download:
            asked = ["--no-deps", "--no-binary=openai", f"--dest={download}", f"openai=={release}"]
            pip = [*_PIP, "--python", str(python), "download", "--quiet"]
            try:
                # pip asks the distribution for its metadata, and what builds it is here: no environment for that.
                _run([*pip, "--no-build-isolation", *asked])
            except SuiteError:
                _run([*pip, *asked])
            with tarfile.open(Path(download) / f"openai-{release}.tar.gz") as archive:
                archive.extractall(work, filter="data")
    recorded = source / ".inline-snapshot" / "external"
    if snapshots is not None:
        recorded.mkdir(parents=True, exist_ok=True)
        for file in snapshots.glob("*.bin"):
            shutil.copy(file, recorded)
    return source


@contextmanager
def mock_server(description: Path, work: Path) -> Iterator[str]:
    """A server that answers as an API's description says; its address. Raises SuiteError."""
    home = work / "mock"
    if not (home / "node_modules" / ".bin" / "steady").exists():
        home.mkdir(exist_ok=True)
        _run(["npm", "init", "-y"], home)
        _run(["npm", "install", "--silent", _MOCK_SERVER], home)
    program = next((home / "node_modules" / "@stdy").glob("cli-*/bin/steady"), None)
    if program is None:
        raise SuiteError(f"npm installed {_MOCK_SERVER} without its program for this machine")
    port = free_port()
    formats = [
        f"--validator-{what}-format=brackets" for what in ("query-array", "form-array", "query-object", "form-object")
    ]
    with (work / "mock.log").open("wb") as log:
        command = [str(program), "--host", "127.0.0.1", "-p", str(port), "-q", *formats, str(description)]
        server = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            _wait_for(f"http://127.0.0.1:{port}/_x-steady/health", server, work / "mock.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(_MOCK_START_S * 2):
        try:
            with direct.open(address, timeout=5):
                return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.5)
    raise SuiteError(f"the mock server did not start: see {log}\n{log.read_text(errors='replace')[-1000:]}")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _run(command: list[str], directory: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SuiteError(f"needs {command[0]}, which is not installed") from None
    if done.returncode:
        raise SuiteError(f"{' '.join(command[:8])} … ended with {done.returncode}:\n{done.stderr[-2000:]}")
