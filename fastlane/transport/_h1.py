"""One HTTP/1.1 connection without its I/O: h11 speaks the protocol, and whole chunks of a stream pass it by."""

from __future__ import annotations

import re

import h11

from ._errors import TransportError
from ._exchange import AnswerHead, Exchange

MAX_INCOMPLETE = 100 * 1024
"""Bytes that may wait for the rest of a head, of a chunk's size line, or of the trailers; httpcore's limit."""
MAX_INFORMATIONAL = 100
"""Heads with a status of 1xx that may come before the answer."""
ROOM = 1024 * 1024
"""Bytes of a request's body taken at once: HTTP/1.1 has no windows, and the driver holds back what the socket does."""

SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
WHAT_CAME = re.compile(r":? (?:bytearray\()?b['\"].*", re.DOTALL)


def said(error: h11.ProtocolError) -> TransportError:
    """What h11 says, without the bytes that it quotes: they may be a secret."""
    message = WHAT_CAME.sub("", str(error))
    if isinstance(error, h11.LocalProtocolError):
        return TransportError("LocalProtocolError", message)
    return TransportError("RemoteProtocolError", message)


def whole_chunks(data: bytes) -> tuple[list[bytes | bytearray], int]:
    """The bodies of the plain, complete chunks that the bytes begin with, and where the first other byte stands.

    Plain is what h11 cannot read otherwise than so: a size above 0, without an extension.
    """
    bodies: list[bytes | bytearray] = []
    at = 0
    while line := SIZE_LINE.match(data, at):
        start = line.end()
        stop = start + int(line[1], 16)
        if stop == start or not data.startswith(b"\r\n", stop):
            break
        bodies.append(data[start:stop])
        at = stop + 2
    return bodies, at


class Http1Connection:
    """An `HttpConnection` that carries one exchange at a time."""

    __slots__ = ("_at_chunk", "_chunked", "_exchange", "_h11", "_informational", "_outgoing", "_reusable")

    http_version = "HTTP/1.1"
    is_ready = True
    ping_sent_ns: int | None = None

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_INCOMPLETE)
        self._exchange: Exchange | None = None
        self._outgoing: list[bytes] = []
        self._reusable = True
        self._informational = 0
        self._chunked = False
        self._at_chunk = False
        """h11 waits for the size line of a chunk and holds no byte: it would read the next chunk as we do."""

    @property
    def capacity(self) -> int:
        """1, or 0 once the connection cannot be used after the exchange that is open."""
        return 1 if self._reusable else 0

    @property
    def open_exchanges(self) -> int:
        """1 from the beginning of an exchange to the end of its answer."""
        return 0 if self._exchange is None else 1

    def start(self) -> None:
        """HTTP/1.1 begins with the first request."""

    # ------------------------------------------------------------------------------------------------- the request

    def data_to_send(self) -> bytes:
        """Take what is to be sent now."""
        outgoing = self._outgoing
        if not outgoing:
            return b""
        self._outgoing = []
        return outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)

    def begin(self, exchange: Exchange, *, end: bool) -> None:
        """Send the head of a request."""
        if self._exchange is not None or not self._reusable:
            raise TransportError("WriteError", "The connection takes no further request.", unprocessed=True)
        head = exchange.request_head
        try:
            # What cannot be sent is found before h11 changes its state: the connection stays good for others.
            request = h11.Request(method=head.method, target=head.target, headers=head.headers)
        except h11.LocalProtocolError as error:
            failure = said(error)
        else:
            exchange.phases.http_version = self.http_version
            self._exchange = exchange
            self._informational = 0
            self._write(exchange, request, *([h11.EndOfMessage()] if end else []))
            return
        raise failure

    def room(self, exchange: Exchange) -> int:
        """Bytes of the request's body that may be sent now: many, until the request or the exchange is over."""
        return 0 if exchange is not self._exchange or exchange.request_ended else ROOM

    def send(self, exchange: Exchange, data: bytes, *, end: bool) -> None:
        """Send bytes of the request's body. What comes after the exchange is over is thrown away.

        Raises LocalProtocolError where there are more or fewer of them than the head has said.
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
            failure = said(error)
        else:
            self._outgoing += written
            return
        # The server waits for bytes that will not come, or would take the ones too many for another request.
        self._reusable = False
        raise failure

    # -------------------------------------------------------------------------------------------------- the answer

    def receive(self, data: bytes, now_ns: int) -> None:
        """Bytes have come from the peer."""
        exchange = self._exchange
        if exchange is None:
            if data:
                # A second answer to one request, or the 408 with which some servers close: it must never become
                # the answer to the next request.
                self._reusable = False
                raise TransportError("RemoteProtocolError", "Server sent bytes that no request has asked for.")
            return
        if not data:
            return
        pieces: list[bytes | bytearray] = []
        if self._at_chunk:
            line = SIZE_LINE.match(data)
            if line is not None:
                start = line.end()
                stop = len(data) - 2
                if stop - start == int(line[1], 16) > 0 and data.endswith(b"\r\n"):
                    # What nearly all reads of a paced stream are.
                    exchange.arrived(data[start:stop], now_ns)
                    return
                pieces, at = whole_chunks(data)
                data = data[at:]
                if not data:
                    exchange.arrived(b"".join(pieces), now_ns)
                    return
        elif exchange.phases.first_byte_ns is None:
            exchange.phases.first_byte_ns = now_ns
        self._at_chunk = False
        self._h11.receive_data(data)
        self._read(exchange, pieces, data, now_ns)

    def receive_end(self, now_ns: int) -> None:
        """The peer will send nothing more: the end of the connection, and of an answer that is as long as it lasts."""
        self._reusable = False
        exchange = self._exchange
        if exchange is None:
            return
        if self._h11.their_state is h11.SEND_RESPONSE:
            raise TransportError("RemoteProtocolError", "Server disconnected without sending a response.")
        self._h11.receive_data(b"")
        self._read(exchange, [], b"", now_ns)

    def _read(self, exchange: Exchange, pieces: list[bytes | bytearray], data: bytes, now_ns: int) -> None:
        """Have h11 read what it holds, of which `data` came last; `pieces` of the body came before it."""
        ended = False
        failure: TransportError | None = None
        last: h11.Data | h11.Response | None = None
        try:
            while not ended:
                event = self._h11.next_event()
                if isinstance(event, h11.Data):
                    pieces.append(event.data)
                    last = event
                elif isinstance(event, (h11.Response, h11.InformationalResponse)):
                    ended = self._read_head(exchange, event, now_ns)
                    last = event if isinstance(event, h11.Response) else None
                elif isinstance(event, h11.EndOfMessage):
                    ended = True
                else:
                    break
        except h11.RemoteProtocolError as error:
            failure = said(error)
        except TransportError as error:
            failure = error
        if pieces:
            exchange.arrived(bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces), now_ns)
        if failure is not None:
            self._reusable = False
            raise failure
        if ended:
            self._end(exchange, now_ns)
        elif self._chunked and last is not None:
            self._at_chunk = self._stands_at_chunk(last, data)

    def _read_head(self, exchange: Exchange, event: h11.Response | h11.InformationalResponse, now_ns: int) -> bool:
        """Take the head of an answer; whether the answer is over with it."""
        if event.status_code < 200 and event.status_code != 101:
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                raise TransportError("RemoteProtocolError", "Server sent too many informational responses.")
            # The answer's own first byte is still to come, or came behind this head.
            exchange.phases.first_byte_ns = now_ns if self._h11.trailing_data[0] else None
            return False
        # Anything but DONE: the answer came before the request was sent, one side closes, or the protocol changes.
        self._reusable = self._reusable and self._h11.our_state is h11.DONE
        self._chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        exchange.answer_head = AnswerHead(event.status_code, event.headers.raw_items(), bytes(event.reason))
        exchange.wake()
        return self._h11.their_state is h11.SWITCHED_PROTOCOL

    def _stands_at_chunk(self, last: h11.Data | h11.Response, data: bytes) -> bool:
        """Whether h11, which has read all of `data` that it can, stands before the size line of a chunk."""
        if self._h11.trailing_data[0]:
            return False
        if isinstance(last, h11.Response):
            return True
        # h11 does not say whether it has read the line's end behind the chunk. It has where the bytes end so: with one
        # or two bytes less, they could only do so if there were an empty size line.
        body = last.data
        return last.chunk_start and last.chunk_end and data.endswith(b"%x\r\n%b\r\n" % (len(body), body))

    def _end(self, exchange: Exchange, now_ns: int) -> None:
        """The answer is complete: make the connection ready for the next request, if it may carry one."""
        self._exchange = None
        both = (self._h11.our_state, self._h11.their_state)
        if self._reusable and both == (h11.DONE, h11.DONE) and not self._h11.trailing_data[0]:
            self._h11.start_next_cycle()
        else:
            self._reusable = False
        exchange.end(now_ns)

    # ------------------------------------------------------------------------------------------- the rest of a life

    def took(self, exchange: Exchange, count: int) -> None:
        """HTTP/1.1 has no windows."""

    def cancel(self, exchange: Exchange) -> bool:
        """Only closing the connection stops an answer that is under way."""
        if exchange is self._exchange:
            self._exchange = None
            self._reusable = False
        return self._reusable

    def ping(self, now_ns: int) -> bool:
        """HTTP/1.1 cannot ask."""
        return False

    def goodbye(self) -> None:
        """HTTP/1.1 just closes."""

    def lost(self, error: TransportError) -> None:
        """Break off the exchange that is open."""
        self._reusable = False
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.fail(error.again())
