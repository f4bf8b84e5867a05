"""Arize Phoenix and MLflow, each in an environment of its own: their servers, and the spans that they show."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from scripts.environments import ROOT, environment
from scripts.servers import HttpServer, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSpan:
    """One span as a backend shows it."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    """What the backend takes it for, in its own word: "LLM", "CHAIN", "UNKNOWN"."""
    failed: bool
    start_ns: int
    """Nanoseconds since the epoch, as exact as the backend keeps them."""
    end_ns: int
    attributes: Mapping[str, Any]
    """In the backend's own names where it has some."""
    tokens: Mapping[str, int]
    """What the backend counts of the prompt ("input", "cache_read", "cache_write") and of the answer ("output")."""
    model: str | None = None
    """What it takes for the model."""
    link_reasons: tuple[str, ...] = ()
    """`fastlane.link.reason` of the span's links."""

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class SeenSpans:
    """All spans of a project, and which is below which."""

    def __init__(self, spans: Iterable[SeenSpan]) -> None:
        self.all = sorted(spans, key=lambda span: (span.start_ns, span.end_ns))
        self._by_id = {span.span_id: span for span in self.all}
        self.roots = [span for span in self.all if span.parent_id is None]
        self.orphans = [span for span in self.all if span.parent_id is not None and span.parent_id not in self._by_id]
        """Spans whose parent the backend does not have."""

    def __iter__(self) -> Iterator[SeenSpan]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def parent(self, span: SeenSpan) -> SeenSpan | None:
        """Return the span above; None for a root."""
        return None if span.parent_id is None else self._by_id[span.parent_id]

    def children(self, span: SeenSpan) -> list[SeenSpan]:
        """Return the spans right below, in the order of their starts."""
        return [child for child in self.all if child.parent_id == span.span_id]

    def below(self, span: SeenSpan) -> list[SeenSpan]:
        """Return all spans below, whatever is between."""
        return [span for child in self.children(span) for span in (child, *self.below(child))]


class Backend(HttpServer):
    """A server that keeps traces."""

    package: ClassVar[str]

    @classmethod
    def program(cls) -> str:
        """Return the path of its program, which is installed first where it is missing. Raises UnavailableError."""
        # All packages of its environment, in the versions with which the backend was tried.
        pins = Path(__file__).with_name(f"constraints-{cls.name}.txt")
        home = environment(ROOT / ".venv-backends" / cls.name, (cls.package,), pins=pins)
        return str(home / "bin" / cls.name)

    def project(self, name: str) -> str:
        """Create a project for traces, and return its id."""
        return name

    def variables(self, project: str) -> dict[str, str]:
        """Return the environment of an application whose traces are to go there; see `project`."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            **self._own_variables(project),
        }

    def _own_variables(self, project: str) -> dict[str, str]:
        raise NotImplementedError

    def spans(self, project: str) -> SeenSpans:
        """Return all spans of the project."""
        raise NotImplementedError


class Phoenix(Backend):
    """Phoenix with an empty database."""

    name = "phoenix"
    package = "arize-phoenix"
    health = "/healthz"

    def _command(self) -> list[str]:
        return [self.program(), "serve"]

    def _environment(self) -> Mapping[str, str]:
        return {
            "PHOENIX_WORKING_DIR": str(self.directory),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self.port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "DO_NOT_TRACK": "true",
        }

    def _own_variables(self, project: str) -> dict[str, str]:
        return {"OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}"}

    def spans(self, project: str) -> SeenSpans:
        """Return all spans of the project."""
        path, cursor, found = f"/v1/projects/{quote(project)}/spans?limit=1000", "", []
        while True:
            page = self.ask(path + cursor)
            found += page["data"]
            if not page["next_cursor"]:
                return SeenSpans(map(_phoenix_span, found))
            cursor = f"&cursor={quote(page['next_cursor'])}"


# OpenInference's names, which Phoenix reads `gen_ai.usage.*` into.
_PHOENIX_TOKENS = {
    "input": "llm.token_count.prompt",
    "output": "llm.token_count.completion",
    "cache_read": "llm.token_count.prompt_details.cache_read",
    "cache_write": "llm.token_count.prompt_details.cache_write",
}


def _phoenix_span(span: Mapping[str, Any]) -> SeenSpan:
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
        tokens={name: int(attributes[key]) for name, key in _PHOENIX_TOKENS.items() if key in attributes},
        model=attributes.get("llm.model_name"),
    )


def _ns(text: str) -> int:
    """Return a moment that Phoenix keeps in microseconds."""
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


class MLflow(Backend):
    """MLflow's tracking server with an empty database."""

    name = "mlflow"
    package = "mlflow"
    health = "/health"

    def _command(self) -> list[str]:
        return [
            *(self.program(), "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{self.directory / 'mlflow.db'}"),
            # It writes this into every trace: nothing of this machine may be in it.
            *("--serve-artifacts", "--artifacts-destination", str(self.directory / "artifacts")),
        ]

    def _environment(self) -> Mapping[str, str]:
        return {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
        }

    def project(self, name: str) -> str:
        """Make an experiment, where traces are kept, and return its id."""
        return str(self.ask("/api/2.0/mlflow/experiments/create", {"name": name})["experiment_id"])

    def _own_variables(self, project: str) -> dict[str, str]:
        # The server takes up to ten seconds for the first traces, because only then it imports what it needs.
        headers = f"x-mlflow-experiment-id={project}"
        return {"OTEL_EXPORTER_OTLP_HEADERS": headers, "OTEL_EXPORTER_OTLP_TIMEOUT": "30"}

    def spans(self, project: str) -> SeenSpans:
        """Return all spans of the experiment."""
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": project}}
        asked: dict[str, Any] = {"locations": [where], "max_results": 500}
        traces = "/api/3.0/mlflow/traces"
        found: list[Any] = []
        while True:
            page = self.ask(f"{traces}/search", asked)
            for one in page.get("traces", []):
                trace = self.ask(f"{traces}/get?{urlencode({'trace_id': one['trace_id']})}")["trace"]
                found += map(_mlflow_span, trace["spans"])
            if not page.get("next_page_token"):
                return SeenSpans(found)
            asked["page_token"] = page["next_page_token"]


_MLFLOW_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}


def _mlflow_span(span: Mapping[str, Any]) -> SeenSpan:
    attributes = _plain(span["attributes"])
    usage = attributes.get("mlflow.chat.tokenUsage", {})
    links = map(_plain, (link["attributes"] for link in span.get("links", ())))
    return SeenSpan(
        trace_id=_hex(span["trace_id"]),
        span_id=_hex(span["span_id"]),
        parent_id=_hex(span["parent_span_id"]) if span.get("parent_span_id") else None,
        name=span["name"],
        kind=attributes.get("mlflow.spanType", "UNKNOWN"),
        failed=span["status"].get("code") == "STATUS_CODE_ERROR",
        start_ns=int(span["start_time_unix_nano"]),
        end_ns=int(span["end_time_unix_nano"]),
        attributes=attributes,
        tokens={name: int(usage[key]) for name, key in _MLFLOW_TOKENS.items() if key in usage},
        model=attributes.get("mlflow.llm.model"),
        link_reasons=tuple(link.get("fastlane.link.reason", "") for link in links),
    )


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _plain(attributes: Any) -> dict[str, Any]:
    """Return attributes of OTLP's JSON as plain values."""
    return {one["key"]: _value(one["value"]) for one in attributes}


def _value(value: Mapping[str, Any]) -> Any:
    ((kind, plain),) = value.items()
    readers: Mapping[str, Callable[[Any], Any]] = {
        "kvlist_value": lambda plain: _plain(plain.get("values", [])),
        "array_value": lambda plain: list(map(_value, plain.get("values", []))),
        # 64-bit integers are text in the JSON of Protocol Buffers, by its definition.
        "int_value": int,
    }
    return readers[kind](plain) if kind in readers else plain
