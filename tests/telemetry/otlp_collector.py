"""A collector of OpenTelemetry's protocol over HTTP, on loopback, that reads what it is sent."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What it was sent so far."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    spans: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    """Each with the attributes of its resource."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """The last one of each name."""

    def names(self) -> list[str]:
        """Of the spans."""
        return [span.name for _, span in self.spans]

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Read what one request brings."""
        self.paths.append(path)
        self.headers.append(headers)
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if path.endswith("traces"):
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource_attributes = {one.key: one.value.string_value for one in of_resource.resource.attributes}
                self.spans += [(resource_attributes, span) for scope in of_resource.scope_spans for span in scope.spans]
        else:
            for of_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {one.name: one for scope in of_metrics.scope_metrics for one in scope.metrics}


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that listens."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.take(self.path.partition("?")[0], {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def run(script: str, environment: Mapping[str, str], *arguments: str) -> str:
    """What a process that does `script` prints; its variables of telemetry are those of `environment` alone.

    Raises AssertionError, which quotes its output, if it fails.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "FASTLANE_"))}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
