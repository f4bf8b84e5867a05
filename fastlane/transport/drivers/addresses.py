"""The addresses of a host: looked up with a limit to the wait, and in the order in which to try them."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fastlane._clock import now_ns

from ..protocols.errors import TransportError

# How soon a thread that waits notices that nobody wants its connection any more.
CANCEL_LOOK_NS = 50_000_000
_NS = 1_000_000_000
# Threads that may wait for the resolver at once, each for another name.
_MOST_LOOKUPS = 32


class Address(NamedTuple):
    """An address to connect to."""

    family: int
    socket_address: tuple[Any, ...]
    """As the socket module has it for the family."""

    def __str__(self) -> str:
        return address_text(self.socket_address)


def address_text(socket_address: tuple[Any, ...]) -> str:
    """Host and port, such as "1.2.3.4:443" or "[::1]:443"."""
    host, port = socket_address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def interleave(addresses: Iterable[Address]) -> list[Address]:
    """Alternate between the families, beginning with that of the first address, each once (RFC 8305, 4)."""
    families: dict[int, deque[Address]] = {}
    for address in dict.fromkeys(addresses):
        families.setdefault(address.family, deque()).append(address)
    ordered = []
    while families:
        for family in list(families):
            ordered.append(families[family].popleft())
            if not families[family]:
                del families[family]
    return ordered


def connect_error(error: Exception) -> TransportError:
    """An operating system's error, in the words of the stock client."""
    number = getattr(error, "errno", None)
    text = str(error)
    if number and not isinstance(error, socket.gaierror):
        text = f"[Errno {number}] {os.strerror(number)}"  # the same from asyncio, which puts in words of its own
    # As httpcore has it, where the kernel's own patience ended.
    return TransportError("ConnectTimeout" if isinstance(error, TimeoutError) else "ConnectError", text)


def timed_out() -> TransportError:
    """Return the error of a lookup that took too long."""
    return TransportError("ConnectTimeout", "timed out")


def unwanted() -> TransportError:
    """Return the error of a lookup that nobody waits for any more."""
    return TransportError("ConnectError", "The connection was given up before it was open.")


def literal(host: str, port: int) -> list[Address] | None:
    """The address that the host is already; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return [Address(socket.AF_INET, (host, port))]
    if "%" not in host:
        return [Address(socket.AF_INET6, (host, port, 0, 0))]
    return looked_up(host, port, socket.AI_NUMERICHOST)  # the zone's number; asks nobody


def looked_up(host: str, port: int, flags: int = 0) -> list[Address]:
    """The addresses that the system knows for a host, waited for however long it takes."""
    try:
        return usable(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except (OSError, ValueError) as error:  # ValueError: no name at all, such as one with an empty label
        raise connect_error(error) from error


def usable(found: Iterable[tuple[Any, ...]]) -> list[Address]:
    """What `getaddrinfo` found, in the order in which to try it."""
    addresses = [Address(family, socket_address) for family, _, _, _, socket_address in found]
    if not addresses:
        raise OSError("the name has no address")
    return interleave(addresses)


def _patience_s(deadline_ns: int | None, cancelled: Callable[[], bool] | None) -> float | None:
    """For how long to wait before asking again; None for ever. Raises once there is nothing to wait for."""
    waits = []
    if cancelled is not None:
        if cancelled():
            raise unwanted()
        waits.append(CANCEL_LOOK_NS)
    if deadline_ns is not None:
        waits.append(deadline_ns - now_ns())
        if waits[-1] <= 0:
            raise timed_out()
    return min(waits) / _NS if waits else None


class _Lookups:
    """Names that are being looked up by threads of their own, because nothing can interrupt the resolver."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[tuple[str, int], list[list[Address] | TransportError]] = {}

    def ask(self, host: str, port: int, deadline_ns: int | None, cancelled: Callable[[], bool] | None) -> list[Address]:
        """The addresses of a name. Whoever asks for the same one meanwhile shares the answer."""
        key = host, port
        answer: list[list[Address] | TransportError] | None = None
        with self._changed:
            while True:
                if answer is None:
                    answer = self._running.get(key)
                if answer is None and len(self._running) < _MOST_LOOKUPS:
                    answer = self._running[key] = []
                    thread = threading.Thread(target=self._run, args=(key, answer), name="fastlane-dns", daemon=True)
                    try:
                        thread.start()
                    except BaseException as error:
                        del self._running[key]
                        if not isinstance(error, RuntimeError):
                            raise
                        break  # the interpreter is ending, or the system has no thread left
                if answer:
                    break
                self._changed.wait(_patience_s(deadline_ns, cancelled))
        if not answer:
            return looked_up(host, port)
        if isinstance(answer[0], TransportError):
            raise answer[0].again()
        return answer[0]

    def _run(self, key: tuple[str, int], answer: list[list[Address] | TransportError]) -> None:
        found: list[Address] | TransportError
        try:
            found = looked_up(*key)
        except TransportError as error:
            found = error
        except BaseException as error:  # noqa: BLE001 - those who wait must hear of it
            found = TransportError("ConnectError", str(error))
        with self._changed:
            answer.append(found)
            if self._running.get(key) is answer:
                del self._running[key]
            self._changed.notify_all()


_lookups = _Lookups()


def _after_fork() -> None:
    global _lookups  # noqa: PLW0603 - its threads do not exist in the child
    _lookups = _Lookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def look_up(host: str, port: int, deadline_ns: int | None, cancelled: Callable[[], bool] | None) -> list[Address]:
    """The addresses of a name, waited for until the deadline at most."""
    if deadline_ns is None and cancelled is None:
        return looked_up(host, port)
    return _lookups.ask(host, port, deadline_ns, cancelled)
