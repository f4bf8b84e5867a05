"""Arize Phoenix: start it, and read spans back over its REST interface."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from scripts.backends import _environments
from scripts.backends._server import Server
from scripts.backends._spans import SeenSpan, SeenSpans
from scripts.servers import free_port

_PAGE = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# OpenInference's names, which Phoenix reads `gen_ai.usage.*` into.
_TOKENS = {
    "input": "llm.token_count.prompt",
    "output": "llm.token_count.completion",
    "cache_read": "llm.token_count.prompt_details.cache_read",
    "cache_write": "llm.token_count.prompt_details.cache_write",
}


class Phoenix(Server):
    """Phoenix with an empty database."""

    name = "phoenix"
    health = "/healthz"

    def command(self) -> list[str]:
        """The server's command line."""
        return [_environments.program("phoenix"), "serve"]

    def environment(self) -> Mapping[str, str]:
        """Where it listens and keeps what it is sent, and that it tells nobody of itself."""
        return {
            "PHOENIX_WORKING_DIR": str(self.directory),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self.port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "DO_NOT_TRACK": "true",
        }

    def variables(self, project: str) -> dict[str, str]:
        """The environment of an application whose traces are to go into this project."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}",
        }

    def spans(self, project: str) -> SeenSpans:
        """All spans of the project."""
        path, cursor, found = f"/v1/projects/{quote(project)}/spans?limit={_PAGE}", "", []
        while True:
            page = self.ask(path + cursor)
            found += page["data"]
            if not page["next_cursor"]:
                return SeenSpans(map(_seen, found))
            cursor = f"&cursor={quote(page['next_cursor'])}"


def _seen(span: Mapping[str, Any]) -> SeenSpan:
    attributes = span["attributes"]
    return SeenSpan(
        trace_id=span["context"]["trace_id"],
        span_id=span["context"]["span_id"],
        parent_id=span["parent_id"],
        name=span["name"],
        kind=span["span_kind"],
        failed=span["status_code"] == "ERROR",
        start_ns=_ns(span["start_time"]),
        end_ns=_ns(span["end_time"]),
        attributes=attributes,
        tokens={name: int(attributes[key]) for name, key in _TOKENS.items() if key in attributes},
        model=attributes.get("llm.model_name"),
    )


def _ns(text: str) -> int:
    """A moment that Phoenix keeps in microseconds."""
    since = datetime.fromisoformat(text) - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
