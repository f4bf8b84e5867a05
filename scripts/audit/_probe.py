"""Run a module's import or a file of code with every audited event noted: needs nothing but Python's own library.

    python -I _probe.py import fastlane        what importing it loads and does
    python -I _probe.py run example.py         what code does

Prints one line of JSON, and what the code itself prints before it.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

_NETWORK = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
_NETWORK_OF_LIBRARIES = (
    "urllib.Request",
    "http.client.connect",
    "ftplib.connect",
    "smtplib.connect",
    "webbrowser.open",
)
_PROCESSES = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
)
_CHANGES = (
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown",
    "os.putenv", "os.unsetenv", "tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect",
    "shutil.copyfile", "shutil.move",
)  # fmt: skip
_DATA_AS_CODE = ("pickle.find_class", "marshal.loads", "marshal.load", "code.__new__", "function.__new__")
_IMPORTING = "<frozen importlib._bootstrap_external>"


class Noted:
    """What has happened since it began."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.network: list[str] = []
        self.processes: list[str] = []
        self.libraries: set[str] = set()
        self.compiled: set[str] = set()
        self.data_as_code: list[str] = []
        self.threads: list[str] = []
        self._is_on = True

    def stop(self) -> None:
        """Note nothing more: a hook cannot be taken away."""
        self._is_on = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of an event. Raises nothing, whatever its arguments are."""
        if not self._is_on:
            return
        if event == "open":
            self._opened(*arguments)
        elif event in _NETWORK:
            self.network.append(
                f"{event} {arguments[1] if event in ('socket.connect', 'socket.bind') else arguments[:2]}"
            )
        elif event in _NETWORK_OF_LIBRARIES:
            self.network.append(event)
        elif event in _PROCESSES:
            self.processes.append(f"{event} {arguments[:1]}")
        elif event in _CHANGES:
            self.written.add(f"{event} {arguments[:1]}")
        elif event == "ctypes.dlopen":
            self.libraries.add(str(arguments[0]))
        elif event == "compile":
            self.compiled.add(f"{_text(arguments[1])} in {sys._getframe(1).f_code.co_filename}")
        elif event == "_thread.start_new_thread":
            self.threads.append(repr(getattr(arguments[0], "__qualname__", arguments[0])))
        elif event in _DATA_AS_CODE and sys._getframe(1).f_code.co_filename != _IMPORTING:
            at = sys._getframe(1).f_code
            self.data_as_code.append(f"{event} in {at.co_filename}:{at.co_qualname}")

    def _opened(self, path: Any, mode: Any = None, flags: Any = 0) -> None:
        if isinstance(path, int):
            return
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        (self.written if writes or (isinstance(mode, str) and set(mode) & set("wax+")) else self.read).add(_text(path))

    def to_dict(self) -> dict[str, Any]:
        """Return it as it is printed."""
        return {
            "read": sorted(self.read),
            "written": sorted(self.written),
            "network": self.network,
            "processes": self.processes,
            "libraries": sorted(self.libraries),
            "compiled": sorted(self.compiled),
            "data_as_code": self.data_as_code,
            "threads": self.threads,
        }


def _text(path: Any) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)


def main(what: str, name: str) -> None:
    """Note what an import or a file of code does, and print it."""
    before = set(sys.modules)
    noted = Noted()
    sys.addaudithook(noted)
    if what == "import":
        importlib.import_module(name)
    else:
        runpy.run_path(name, run_name="__main__")
    noted.stop()
    prefixes = sorted({str(Path(one).resolve()) for one in (sys.prefix, sys.base_prefix, sys.exec_prefix)})
    print(
        json.dumps(
            {
                **noted.to_dict(),
                "modules": sorted(set(sys.modules) - before),
                "running": [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()],
                "prefixes": prefixes,
                "python": sys.version.split()[0],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
