"""One HTTP/1.1 connection without its I/O: h11 speaks the protocol, and whole chunks of a stream pass it by."""

from __future__ import annotations

import re

import h11

from .exchange import AnswerHead, Exchange, TransportError

MAX_INCOMPLETE = 100 * 1024
"""Bytes of a head that may wait for the rest of it; httpcore's limit."""
MAX_LINE = 4096
"""Bytes that may wait for the end of a chunk's size line, with its extension, or of the trailers. Far below h11's own
limit, whose patterns take quadratic time to reject many blanks: 100 KiB of them stop the process for twenty seconds."""
MAX_INFORMATIONAL = 100
"""Heads with a status of 1xx that may come before the answer."""
ROOM = 1024 * 1024
"""Bytes of a request's body taken at once: HTTP/1.1 has no windows, and the driver holds back what the socket does."""

SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
SIZE_LINE_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")
BLANK_LINE = re.compile(rb"\n\r?\n")
IN_NO_HEAD = re.compile(rb"[\x00\x0b\x0c]|\r[^\n]")
"""What h11 rejects in a head, and the only bytes that it takes quadratic time to reject."""
WHAT_CAME = re.compile(r":? (?:bytearray\()?b['\"].*", re.DOTALL)


def h11_error(error: h11.ProtocolError) -> TransportError:
    """Return h11's error without the bytes that it quotes: they may be a secret."""
    message = WHAT_CAME.sub("", str(error))
    if isinstance(error, h11.LocalProtocolError):
        return TransportError("LocalProtocolError", message)
    return TransportError("RemoteProtocolError", message)


def take_whole_chunks(data: bytes, pieces: list[bytes | bytearray]) -> bytes:
    """Take the bodies of the plain, complete chunks at the beginning; return the rest too.

    Plain is what h11 cannot read otherwise: a size above 0 in few digits, and no extension.
    """
    at = 0
    while line := SIZE_LINE.match(data, at):
        start = line.end()
        stop = start + int(line[1], 16)
        if stop == start or not data.startswith(b"\r\n", stop):
            break
        pieces.append(data[start:stop])
        at = stop + 2
    return data[at:]


class Http1Connection:
    """HTTP/1.1 on one connection without its I/O, one exchange at a time; used as `Http2Connection` is."""

    __slots__ = (
        "_chunked",
        "_exchange",
        "_h11",
        "_head_tail",
        "_informational",
        "_left",
        "_size_line",
        "capacity",
        "outgoing",
    )

    http_version = "HTTP/1.1"
    is_ready = True
    has_news = False  # what is allowed changes only with the end of an exchange
    ping_sent_ns: int | None = None
    round_trips_ns: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_INCOMPLETE)
        self._exchange: Exchange | None = None
        self.outgoing: list[bytes] = []
        self.capacity = 1
        """1, or 0 once the connection cannot be used after the exchange that is open."""
        self._informational = 0
        """Heads with a status of 1xx that have come for this exchange."""
        self._head_tail = b""
        """The last bytes that h11 was given of a head that is not complete."""
        self._chunked = False
        """The answer's body comes in chunks."""
        self._left: int | None = None
        """Bytes that h11 needs to the end of a chunk; at 0 it holds nothing, and the next chunk need not pass it.

        None if we do not know: after the first thing in a body that is not a plain chunk.
        """
        self._size_line = b""
        """The beginning of a chunk's size line, kept from h11 until it is known what it becomes."""

    @property
    def open_exchanges(self) -> int:
        """1 from the beginning of an exchange to the end of its answer."""
        return 0 if self._exchange is None else 1

    def start(self, now_ns: int) -> None:
        """HTTP/1.1 begins with the first request."""

    # ------------------------------------------------------------------------------------------------- the request

    def data_to_send(self) -> bytes:
        """Take the bytes to send."""
        outgoing = self.outgoing
        if not outgoing:
            return b""
        self.outgoing = []
        return outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)

    def begin(self, exchange: Exchange, *, end: bool) -> None:
        """Send the head of a request."""
        if self._exchange is not None or not self.capacity:
            raise TransportError("WriteError", "The connection takes no further request.", unprocessed=True)
        head = exchange.request_head
        try:
            # What cannot be sent is found before h11 changes its state: the connection stays good for others.
            request = h11.Request(method=head.method, target=head.target, headers=head.headers)
        except h11.LocalProtocolError as error:
            failure = h11_error(error)
        else:
            exchange.phases.http_version = self.http_version
            self._informational = 0
            self._left = None
            self._write(exchange, request, *([h11.EndOfMessage()] if end else []))
            self._exchange = exchange
            return
        raise failure

    def room(self, exchange: Exchange) -> int:
        """Return the bytes of the body that may be sent now: many, until the request or the exchange is over."""
        return 0 if exchange is not self._exchange or exchange.request_ended else ROOM

    def send(self, exchange: Exchange, data: bytes, *, end: bool) -> None:
        """Send bytes of the request's body. What comes after the end of the exchange is discarded.

        Raises LocalProtocolError if there are more or fewer of them than the head has said.
        """
        if exchange is not self._exchange:
            return
        events: list[h11.Data | h11.EndOfMessage] = [h11.Data(data=data)] if data else []
        self._write(exchange, *events, *([h11.EndOfMessage()] if end else []))

    def _write(self, exchange: Exchange, *events: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        written: list[bytes] = []
        try:
            for event in events:
                part = self._h11.send(event)
                if part:
                    written.append(part)
                if type(event) is h11.EndOfMessage:
                    exchange.request_ended = True
        except h11.LocalProtocolError as error:
            failure = h11_error(error)
        else:
            self.outgoing += written
            return
        # The server waits for bytes that will not come, or would take the ones too many for another request.
        self.capacity = 0
        raise failure

    # -------------------------------------------------------------------------------------------------- the answer

    def receive(self, data: bytes, now_ns: int) -> None:
        """Take bytes from the peer."""
        exchange = self._exchange
        if exchange is None:
            if data:
                # A second answer to one request, or the 408 with which some servers close: it must never become
                # the answer to the next request.
                self.capacity = 0
                raise TransportError("RemoteProtocolError", "Server sent bytes that no request has asked for.")
            return
        if self._left == 0 and not self._size_line:
            line = SIZE_LINE.match(data)
            if line is not None:
                start = line.end()
                stop = len(data) - 2
                if stop - start == int(line[1], 16) > 0 and data.endswith(b"\r\n"):
                    # What nearly all reads of a paced stream are.
                    exchange.arrived(data[start:stop], now_ns)
                    return
        if data:
            self._read(exchange, data, now_ns)

    def receive_end(self, now_ns: int) -> None:
        """Take the peer's end of the stream: it ends a response without a stated length."""
        self.capacity = 0
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.answer_head is None:
            raise TransportError("RemoteProtocolError", "Server disconnected without sending a response.")
        if self._size_line:
            self._h11.receive_data(self._size_line)
        self._read(exchange, b"", now_ns)

    def _read(self, exchange: Exchange, data: bytes, now_ns: int) -> None:
        """Take what has come, or the end of the connection (empty), and hand on what it says."""
        pieces: list[bytes | bytearray] = []
        ended = False
        failure: TransportError | None = None
        try:
            if exchange.answer_head is None:
                ended, data = self._take_heads(exchange, data, pieces, now_ns)
                if data and not ended:
                    ended = self._take_body(exchange, data, pieces)
            else:
                ended = self._take_body(exchange, data, pieces)
        except h11.RemoteProtocolError as error:
            failure = h11_error(error)
        except TransportError as error:
            failure = error
        if pieces:
            exchange.arrived(b"".join(pieces), now_ns)
        if failure is not None:
            self.capacity = 0
            raise failure
        if ended:
            self._end(exchange, now_ns)

    def _take_heads(
        self, exchange: Exchange, data: bytes, pieces: list[bytes | bytearray], now_ns: int
    ) -> tuple[bool, bytes]:
        """Give h11 heads, one by one, up to the answer's own; whether the answer ended with it, and what came after."""
        ended = False
        if exchange.phases.first_byte_ns is None:
            exchange.phases.first_byte_ns = now_ns
        while data and exchange.answer_head is None:
            seen = self._head_tail + data
            blank = BLANK_LINE.search(seen)
            end = blank.end() if blank else len(seen)
            if IN_NO_HEAD.search(seen, 0, end):
                raise TransportError("RemoteProtocolError", "illegal header line")
            end -= len(self._head_tail)
            self._head_tail = b"" if blank else seen[-2:]
            informational = self._informational
            ended = self._feed(exchange, data[:end], pieces)
            data = data[end:]
            if self._informational > informational:
                # The answer's own first byte is still to come, or came behind this head.
                exchange.phases.first_byte_ns = now_ns if data else None
        if ended and data:
            self.capacity = 0
        return ended, data

    def _take_body(self, exchange: Exchange, data: bytes, pieces: list[bytes | bytearray]) -> bool:
        """Take bytes of a body, past h11 where they are plain chunks; whether the answer ended with them."""
        if self._left is not None and data:
            if self._left:
                part, data = data[: self._left], data[self._left :]
                self._feed(exchange, part, pieces)
                self._left -= len(part)
            rest = take_whole_chunks(self._size_line + data, pieces)
            self._size_line = b""
            if not rest or SIZE_LINE_BEGUN.fullmatch(rest):
                self._size_line = rest
                return False
            line = SIZE_LINE.match(rest)
            size = int(line[1], 16) if line else 0
            missing = line.end() + size + 2 - len(rest) if line and size else 0
            self._left = missing if missing > 0 else None
            if self._left:
                return self._feed(exchange, rest, pieces)
            data = rest
        if not self._chunked or not data:
            return self._feed(exchange, data, pieces)
        for at in range(0, len(data), MAX_LINE):
            if self._feed(exchange, data[at : at + MAX_LINE], pieces):
                if at + MAX_LINE < len(data):
                    self.capacity = 0
                return True
            if len(self._h11.trailing_data[0]) > MAX_LINE:
                raise TransportError("RemoteProtocolError", "Receive buffer too long")
        return False

    def _feed(self, exchange: Exchange, data: bytes, pieces: list[bytes | bytearray]) -> bool:
        """Have h11 read bytes, or the end of the connection (empty); whether the answer has ended."""
        self._h11.receive_data(data)
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Data):
                pieces.append(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return True
            elif isinstance(event, (h11.Response, h11.InformationalResponse)):
                self._take_head(exchange, event)
                if self._h11.their_state is h11.SWITCHED_PROTOCOL:
                    return True
            else:
                return False

    def _take_head(self, exchange: Exchange, event: h11.Response | h11.InformationalResponse) -> None:
        if event.status_code < 200 and event.status_code != 101:
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                raise TransportError("RemoteProtocolError", "Server sent too many informational responses.")
            return
        # Anything but DONE: the answer came before the request was sent, one side closes, or the protocol changes.
        self.capacity = 1 if self.capacity and self._h11.our_state is h11.DONE else 0
        self._chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        self._left = 0 if self._chunked else None
        exchange.answer_head = AnswerHead(event.status_code, event.headers.raw_items(), bytes(event.reason))
        exchange.wake()

    def _end(self, exchange: Exchange, now_ns: int) -> None:
        """The answer is complete: make the connection ready for the next request, if it may carry one."""
        self._exchange = None
        both = (self._h11.our_state, self._h11.their_state)
        if self.capacity and both == (h11.DONE, h11.DONE) and not self._h11.trailing_data[0]:
            self._h11.start_next_cycle()
        else:
            self.capacity = 0
        exchange.end(now_ns)

    # ------------------------------------------------------------------------------------------- the rest of a life

    def took(self, exchange: Exchange, count: int) -> None:
        """HTTP/1.1 has no windows."""

    def cancel(self, exchange: Exchange) -> bool:
        """Return False where only closing the connection stops an answer that is under way."""
        if exchange is self._exchange:
            self._exchange = None
            self.capacity = 0
            return False
        # Another exchange may be on its way here by now: it is not to be harmed.
        return bool(self.capacity) or self._exchange is not None

    def ping(self, now_ns: int) -> bool:
        """HTTP/1.1 cannot ask."""
        return False

    def goodbye(self) -> None:
        """HTTP/1.1 just closes."""

    def lost(self, error: TransportError) -> None:
        """Break off the exchange that is open."""
        self.capacity = 0
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.fail(error.again())
