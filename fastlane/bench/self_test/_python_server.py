"""The truth server for machines without a C compiler: what `_truth_server.c` is, with the same commands.

A loop of its own on `selectors.SelectSelector`, because select() keeps times of a fraction of a millisecond where
epoll, as Python calls it, rounds them to whole ones.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import re
import selectors
import socket
import sys
import threading
from dataclasses import dataclass, field

from ..._clock import now_ns

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MODELS = b'{"object":"list","data":[{"id":"truth","object":"model","created":1700000000,"owned_by":"truth"}]}'
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"\r\nx-request-id: *([!#-\[\]-~]+)", re.IGNORECASE)
_USER = re.compile(rb'"user": *"([!#-\[\]-~]*)"')
_IDLE_S = 0.5
_AT_ONCE = 64


_ROLE = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
_STOP = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}'
_DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@dataclass(slots=True)
class _Request:
    tag: str
    received_ns: int
    due_ns: int
    gap_ns: int
    tokens: int
    number: int
    role_ns: int = 0
    ended_ns: int = 0
    sent_ns: list[int] = field(default_factory=list)

    def event(self, choices: bytes, usage: bytes = b"null") -> bytes:
        """One chunk, as HTTP/1.1 carries it."""
        data = (
            b'data: {"id":"chatcmpl-%016d","object":"chat.completion.chunk","created":1700000000,"model":"truth",'
            b'"system_fingerprint":"fp_b1a7e9c240","choices":[%s],"usage":%s}\n\n' % (self.number, choices, usage)
        )
        return b"%x\r\n%s\r\n" % (len(data), data)

    def line(self) -> str:
        """As the log tells it."""
        return json.dumps(
            {
                "id": self.tag,
                "number": self.number,
                "received": self.received_ns,
                "role": self.role_ns,
                "first_due": self.due_ns,
                "gap": self.gap_ns,
                "ended": self.ended_ns,
                "sent": self.sent_ns,
            }
        )


class _Connection:
    def __init__(self, server: _Server, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self._came = b""
        self.request: _Request | None = None
        self._has_role = False

    def read(self) -> None:
        try:
            data = self.sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._came += data
        self._answer()

    def close(self) -> None:
        if self.sock.fileno() >= 0:
            self.server.selector.unregister(self.sock)
            self.sock.close()
        self.request = None

    def _answer(self) -> None:
        while self.request is None and self.sock.fileno() >= 0:
            end = self._came.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._came[:end]
            length = _LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._came) < whole:
                return
            received_ns = now_ns()
            body, self._came = self._came[end + 4 : whole], self._came[whole:]
            if head.startswith(b"POST /v1/chat/completions"):
                tag = _REQUEST_ID.search(head) or _USER.search(body)
                self._begin((tag[1].decode("ascii") if tag else "")[:79], received_ns)
            elif head.startswith(b"GET /v1/models"):
                self._plain(b"200 OK", _MODELS)
            elif head.startswith(b"GET /health"):
                self._plain(b"200 OK", b"{}")
            else:
                self._plain(b"404 Not Found", b'{"error":{"message":"no such path","type":"not_found"}}')

    def _plain(self, status: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self._send(head + body)

    def _begin(self, tag: str, received_ns: int) -> None:
        server = self.server
        self._has_role = False
        due_ns = received_ns + server.ttft_ns
        self.request = _Request(tag, received_ns, due_ns, server.gap_ns, server.tokens, next(server.numbers))
        server.requests.append(self.request)
        self._send(_HEAD)
        server.schedule(self.request.due_ns, self)

    def go_on(self) -> None:
        """Send the chunk that is due."""
        request = self.request
        if request is None:
            return
        sent = len(request.sent_ns)
        if not self._has_role:
            self._has_role = True
            request.role_ns = now_ns()
            self._send(request.event(_ROLE))
        elif sent < request.tokens:
            event = request.event(b'{"index":0,"delta":{"content":" w%d"},"logprobs":null,"finish_reason":null}' % sent)
            request.sent_ns.append(now_ns())
            self._send(event)
            if sent + 1 < request.tokens:
                self.server.schedule(request.due_ns + (sent + 1) * request.gap_ns, self)
                return
        else:
            count = request.tokens
            usage = b'{"prompt_tokens":12,"completion_tokens":%d,"total_tokens":%d}' % (count, count + 12)
            self._send(request.event(_STOP))
            self._send(request.event(b"", usage) + _DONE)
            request.ended_ns = now_ns()
            self.request = None
            self._answer()
            return
        self.server.schedule(now_ns() if sent else request.due_ns, self)

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self.sock.fileno() >= 0:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                # A client that reads nothing holds all of the server up: its stamps say so.
                with selectors.SelectSelector() as room:
                    room.register(self.sock, selectors.EVENT_WRITE)
                    room.select(_IDLE_S)
            except OSError:
                self.close()


class _Server:
    def __init__(self) -> None:
        self.selector = selectors.SelectSelector()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setblocking(False)
        self.requests: list[_Request] = []
        self.ttft_ns, self.gap_ns, self.tokens = 50_000_000, 500_000, 200
        self._every_ns = self._stall_ns = self._next_stall_ns = 0
        self._stalls: list[tuple[int, int]] = []
        self._due: list[tuple[int, int, _Connection]] = []
        self._number = itertools.count()
        self.numbers = itertools.count(1)
        self._commands = b""

    def schedule(self, due_ns: int, connection: _Connection) -> None:
        heapq.heappush(self._due, (due_ns, next(self._number), connection))

    def run(self) -> None:
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)
        sys.stdout.write(json.dumps({"port": self.listener.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        going_on = True
        while going_on:
            wake_ns = min([at for at in (self._due[0][0] if self._due else 0, self._next_stall_ns) if at], default=0)
            ready = self.selector.select(max(0.0, (wake_ns - now_ns()) / 1e9) if wake_ns else _IDLE_S)
            if self._next_stall_ns and now_ns() >= self._next_stall_ns:
                self._stall()
            for key, _ in ready:
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj == 0:
                    going_on = self._obey()
                elif key.data.sock.fileno() >= 0:
                    key.data.read()
            for _ in range(_AT_ONCE):
                if not self._due or self._due[0][0] > now_ns():
                    break
                heapq.heappop(self._due)[2].go_on()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self.listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.selector.register(sock, selectors.EVENT_READ, _Connection(self, sock))

    def _stall(self) -> None:
        until_ns = self._next_stall_ns + self._stall_ns
        while now_ns() < until_ns:
            threading.Event().wait((until_ns - now_ns()) / 1e9)
        self._stalls.append((self._next_stall_ns, now_ns()))
        self._next_stall_ns += self._every_ns

    def _obey(self) -> bool:
        data = os.read(0, 4096)
        if not data:
            return False
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            words = line.split()
            if words[:1] == [b"set"]:
                ttft_us, gap_us, self.tokens, every_ms, stall_ms = map(int, words[1:])
                self.ttft_ns, self.gap_ns = 1_000 * ttft_us, 1_000 * gap_us
                self._every_ns, self._stall_ns = 1_000_000 * every_ms, 1_000_000 * stall_ms
                self._next_stall_ns = now_ns() + self._every_ns // 2 if every_ms else 0
            elif words == [b"clear"]:
                self.requests.clear()
                self._stalls.clear()
                for key in list(self.selector.get_map().values()):
                    if isinstance(key.data, _Connection) and key.data.request is not None:
                        key.data.close()
            else:
                said = [json.dumps({"stall": stall}) for stall in self._stalls]
                sys.stdout.write("".join(f"{one}\n" for one in said + [request.line() for request in self.requests]))
            sys.stdout.write("ok\n")
            sys.stdout.flush()
        return True


if __name__ == "__main__":
    _Server().run()
