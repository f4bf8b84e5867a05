"""A server of the benchmarks' own, in a process of its own and, where the system allows it, on another core."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from benchmarks._child import Child


class Server(NamedTuple):
    """A server that runs."""

    base_url: str
    cores: str
    """How the cores are shared with it."""


@contextmanager
def trusted(authorities: Iterable[str]) -> Iterator[None]:
    """Trust these authorities (PEM), and no others, through SSL_CERT_FILE."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("".join(authorities))
        file.flush()
        with patch.dict(os.environ, SSL_CERT_FILE=file.name):
            yield


@contextmanager
def apart() -> Iterator[Callable[[], str]]:
    """Give what moves this process away from those that it has started, where there is a second core and a way to.

    It is called once they run, and says how the cores are shared.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        yield lambda: "not pinned"
        return

    def move() -> str:
        os.sched_setaffinity(0, cores[:1])
        return "client pinned to one, server to the others"

    os.sched_setaffinity(0, cores[1:])  # which a process that is started inherits
    try:
        yield move
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def server_on_another_core(module: str) -> Iterator[Server]:
    """Start `python -m module`, and keep it and this process apart as far as there is a second core and a way to."""
    with apart() as move, Child(module) as child:
        where = move()
        ready = child.hear()
        with trusted([ready["authority"]]):
            yield Server(f"https://127.0.0.1:{ready['port']}/v1", where)
