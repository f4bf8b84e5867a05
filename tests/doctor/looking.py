"""What the tests of `fastlane doctor` share: its command, its JSON, and a server that answers as a test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from fastlane.cli import command_line
from fastlane.providers import ProviderFacts, load

KEY = "sk-nobody-may-see-this"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command_line("doctor"), ["doctor", *map(str, arguments)], env={"SOME_KEY": KEY})


def look(url: str, *options: object, tokens: bool = True, key: bool = True, quick: bool = True) -> dict[str, Any]:
    """Run the command, and return its JSON document."""
    given = {"--yes": tokens, "--quick": quick, "--api-key-env=SOME_KEY": key}
    # What a test that is not quick says of idle connections comes later, and counts.
    result = run(url, "--json", "--idle-s=0", *(name for name, on in given.items() if on), *options)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if document["reached"] else 1), result.output
    assert KEY not in result.output
    return document


def by_name(document: dict[str, Any]) -> dict[str, Any]:
    """Return the findings by what they are about."""
    return {finding["looked_at"]: finding for finding in document["findings"]}


def facts_of(document: dict[str, Any], tmp_path: Path) -> ProviderFacts:
    """Return the measured facts."""
    path = tmp_path / "measured.toml"
    path.write_text(document["facts_toml"])
    return load(path)


Reply = Callable[[dict[str, Any]], tuple[int, dict[str, Any]] | list[tuple[float, bytes]]]
"""From a request's body to status and document, or to the pieces of a stream, each after a pause in seconds; an empty
last one breaks it off."""


@contextmanager
def answering(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve the model "m", whose chat answers `reply` gives; yield the base URL and the bodies of all chat requests."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def respond(self, status: int, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-type"] != "application/json" or "content-encoding" in self.headers:
                return self.respond(415, {})
            bodies.append(json.loads(data))
            answer = reply(bodies[-1])
            if isinstance(answer, tuple):
                return self.respond(*answer)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            if not answer[-1][1]:
                self.send_header("content-length", "1000000")
            self.end_headers()
            for pause_s, piece in answer:
                time.sleep(pause_s)
                self.wfile.write(piece)
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
        finally:
            server.shutdown()
            thread.join()
