from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fastlane.doctor._examination import examine
from fastlane.doctor._session import DoctorSettings
from fastlane.doctor.target import target_of


class Careless(ThreadingHTTPServer):
    """A server that looks at the model alone, and answers, and bills, whatever else it is asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.asked_for: list[str | None] = []
        """The models that were named in bodies that it could read, in JSON and compressed."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing of connections that end early."""


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Careless

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [{"id": "real", "owned_by": "nobody"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            model = json.loads(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)["model"]
        except (ValueError, KeyError, OSError):
            self._answer(400, {"error": {"message": "no body that can be read"}})
            return
        self.server.asked_for.append(model)
        if model == "real":
            self._answer(200, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
        else:
            self._answer(404, {"error": {"message": f"no model {model}"}})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def careless() -> Iterator[Careless]:
    server = Careless()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_is_free_names_no_model_that_could_answer(careless: Careless) -> None:
    url = f"http://127.0.0.1:{careless.server_port}/v1"

    examination = examine(
        DoctorSettings(target=target_of(url), model="real", key="any", quick=True, idle_s=0, probe_timeout_s=30),
        allow=lambda _cost, _model: False,
    )

    (bodies,) = (finding for finding in examination.findings if finding.looked_at == "/chat/completions")
    assert bodies.seen == "json+gzip taken; msgpack, msgpack+gzip refused"
    assert len(careless.asked_for) >= 2
    assert "real" not in careless.asked_for
