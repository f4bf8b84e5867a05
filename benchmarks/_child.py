"""Another process of the benchmarks, which is asked by lines of JSON and ends when its standard input does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Self


class Child:
    """`python -m module`, as a context manager."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def ask(self, question: Any) -> Any:
        """Return the answer to a question. Raises RuntimeError where the process has ended."""
        self._stdin.write(json.dumps(question) + "\n")
        self._stdin.flush()
        return self.hear()

    def hear(self) -> Any:
        """Return the next thing that it says. Raises RuntimeError where the process has ended."""
        line = self._stdout.readline()
        if not line:
            raise RuntimeError("another process of the benchmark ended: what it said is above")
        return json.loads(line)

    def leave(self) -> None:
        """Let it end, without waiting for it."""
        self._stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self.process.wait()
        self._stdout.close()


def say(answer: Any) -> None:
    """Say something to the process that has started this one."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def questions() -> Iterator[Any]:
    """Return what this process is asked, until it is to end."""
    return map(json.loads, sys.stdin)
