"""Run a module's import or a file of code with every audited event noted: needs nothing but Python's own library.

    python -I audit_probe.py import fastlane        what importing it loads and does
    python -I audit_probe.py run example.py         what code does

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

_PROCESSES = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
)  # fmt: skip
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
        self.events: dict[str, list[str]] = {
            name: [] for name in ("read", "written", "network", "processes", "compiled", "data_as_code", "threads")
        }
        self.is_on = True
        """False: note nothing more. A hook cannot be taken away."""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of an event. Raises nothing, whatever its arguments are."""
        if not self.is_on:
            return
        if event == "open":
            self._opened(*arguments)
        elif event in ("socket.connect", "socket.bind"):
            self.events["network"].append(f"{event} {arguments[1]}")
        elif event in ("socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
            self.events["network"].append(f"{event} {arguments[:2]}")
        elif event in _PROCESSES:
            self.events["processes"].append(f"{event} {arguments[:1]}")
        elif event in _CHANGES:
            self.events["written"].append(f"{event} {arguments[:1]}")
        elif event == "compile":
            self.events["compiled"].append(f"{_text(arguments[1])} in {sys._getframe(1).f_code.co_filename}")
        elif event == "_thread.start_new_thread":
            self.events["threads"].append(repr(getattr(arguments[0], "__qualname__", arguments[0])))
        elif event in _DATA_AS_CODE and sys._getframe(1).f_code.co_filename != _IMPORTING:
            caller = sys._getframe(1).f_code
            self.events["data_as_code"].append(f"{event} in {caller.co_filename}:{caller.co_qualname}")

    def _opened(self, path: Any, mode: Any = None, flags: Any = 0) -> None:
        if isinstance(path, int):
            return
        by_flags = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        writes = by_flags or (isinstance(mode, str) and set(mode) & set("wax+"))
        self.events["written" if writes else "read"].append(_text(path))


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
    noted.is_on = False
    once = {kind: sorted(set(noted.events[kind])) for kind in ("read", "written", "compiled")}
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    prefixes = sorted({str(Path(one).resolve()) for one in (sys.prefix, sys.base_prefix, sys.exec_prefix)})
    modules = sorted(set(sys.modules) - before)
    print(json.dumps({**noted.events, **once, "modules": modules, "running": others, "prefixes": prefixes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
