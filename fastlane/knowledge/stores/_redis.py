"""A line to a Redis server, on which batches are said and heard through a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.connection import Connection, parse_url

from fastlane.errors import ConfigurationError

from ._batches import Batch, read

# For a connection, and for each wait on it. Only the store's own thread ever waits.
_TIMEOUT_S = 2.0
_FIELD = b"batch"
_PAGE = 128
# What nobody has added anything to for so long says nothing about today.
_EXPIRY_S = 86_400
# The one of Redis that replies the same to every version of the client.
_PROTOCOL = 2
_EXPECTED = "store expects an address such as redis://user:password@host:6379/0, and in the one that came "


class RedisAddress:
    """Where a server is and how it is spoken to; its text has no credentials."""

    def __init__(self, url: str) -> None:
        options, problem = _read(url)
        if problem:
            raise ConfigurationError(_EXPECTED + problem)
        self._kind: Any = options.pop("connection_class", Connection)
        # Older versions of the client do not check whose certificate it is.
        if url.startswith("rediss:") and options.get("ssl_cert_reqs") != "none":
            options.setdefault("ssl_check_hostname", True)
        self._options = {
            "socket_timeout": _TIMEOUT_S,
            "socket_connect_timeout": _TIMEOUT_S,
            **options,
            "decode_responses": False,
            "protocol": _PROTOCOL,
        }
        try:
            self.connection()
        except Exception:  # noqa: BLE001 - what the client says of it may quote the password
            problem = "there is a parameter that the redis package does not take, or not with this value"
        if problem:
            raise ConfigurationError(_EXPECTED + problem)
        scheme = url.partition(":")[0]
        place = options.get("path", f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")
        self._text = f"{scheme}://{place}"

    def connection(self) -> Any:
        """Return a connection that has not been opened yet."""
        return self._kind(**self._options)

    def __str__(self) -> str:
        return self._text


def _read(url: str) -> tuple[dict[str, Any], str]:
    """What the client makes of an address, and what is wrong with it, without a word of it."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            return {}, "a user name or password has / ? # or @ in it, which is to be written as %2F %3F %23 %40"
        if parts.scheme == "unix" and not parts.path:
            return {}, "no path of a socket follows unix://"
        return dict(parse_url(url)), ""  # type: ignore[no-untyped-call]
    except ValueError:
        return {}, "the port or a parameter is no number"


class RedisLine:
    """One connection, and how far on it the stream has been read.

    It asks every now and then instead of having the server hold the question back until there is something (`BLOCK`).
    So one connection and one thread do for both directions, what was published is said in the same round trip in which
    is heard, however many others there are this process wakes up equally often, and proxies that know no blocking
    commands can stand in between.
    """

    def __init__(self, address: RedisAddress, key: str, history: int) -> None:
        self._address = address
        self._key = key
        self._history = history
        self._connection: Any = None
        self._latest: bytes | None = None
        """ID of the newest entry that was heard on this connection; None where none was."""

    def exchange(self, batches: Sequence[bytes]) -> Iterator[tuple[Batch | None, float]]:
        """Say batches, then yield those that were kept since the last time, each with its age in seconds.

        None is a batch that cannot be read. On a new connection the latest ones are heard that have the events of the
        history, and what was heard before is among them. Everything has been said once there is an iterator.
        """
        if self._connection is None:
            self._latest = None
            self._connection = self._address.connection()
            self._connection.connect()
        if self._latest is None:
            now_ms, page = self._ask(batches, "XREVRANGE", self._key, "+", "-", "COUNT", str(_PAGE))
            return self._recent(now_ms, page)
        now_ms, page = self._ask(batches, *self._following())
        return self._news(now_ms, page)

    def say(self, batches: Sequence[bytes]) -> None:
        """Say batches, and listen to nothing."""
        if self._connection is not None and batches:
            self._ask(batches, "PING")

    def hang_up(self) -> None:
        """Close the connection; in a child process without the parent's noticing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _ask(self, batches: Sequence[bytes], *question: str) -> tuple[float, Any]:
        """The server's time in milliseconds, and its answer to the question."""
        commands: list[tuple[Any, ...]] = [
            ("XADD", self._key, "MAXLEN", "~", str(self._history), "*", _FIELD, batch) for batch in batches
        ]
        if batches:
            commands.append(("EXPIRE", self._key, str(_EXPIRY_S)))
        commands += [("TIME",), question]
        connection = self._connection
        connection.send_packed_command(connection.pack_commands(commands))
        replies = [connection.read_response() for _ in commands]
        seconds, microseconds = replies[-2]
        return int(seconds) * 1e3 + int(microseconds) / 1e3, replies[-1]

    def _following(self) -> tuple[str, ...]:
        assert self._latest is not None
        return "XREAD", "COUNT", str(_PAGE), "STREAMS", self._key, self._latest.decode()

    def _news(self, now_ms: float, reply: Any) -> Iterator[tuple[Batch | None, float]]:
        while True:
            entries = reply[0][1] if reply else []
            for entry in entries:
                self._latest = entry[0]
                yield _heard(entry, now_ms)
            if len(entries) < _PAGE:
                return
            now_ms, reply = self._ask((), *self._following())

    def _recent(self, now_ms: float, page: Any) -> Iterator[tuple[Batch | None, float]]:
        latest = page[0][0] if page else b"0-0"
        heard: list[tuple[Batch | None, float]] = []
        events = 0
        while True:
            for entry in page:
                heard.append(_heard(entry, now_ms))
                events += len(batch.events) if (batch := heard[-1][0]) else 0
                if events >= self._history:
                    break
            if len(page) < _PAGE or events >= self._history:
                break
            now_ms, page = self._ask((), "XREVRANGE", self._key, _before(page[-1][0]), "-", "COUNT", str(_PAGE))
        self._latest = latest
        yield from reversed(heard)


def _heard(entry: Any, now_ms: float) -> tuple[Batch | None, float]:
    """The batch in an entry and its age: both times are the server's, so that no other clock has a say in it."""
    identity, fields = entry
    pairs = dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
    return read(pairs.get(_FIELD)), max(0.0, now_ms - int(identity.partition(b"-")[0])) / 1e3


def _before(identity: bytes) -> str:
    """The ID before this one, for servers older than 6.2 that know no open ranges."""
    milliseconds, _, number = identity.partition(b"-")
    return f"{int(milliseconds)}-{int(number) - 1}" if int(number) else str(int(milliseconds) - 1)
