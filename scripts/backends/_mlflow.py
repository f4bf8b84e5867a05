"""MLflow: start its tracking server, and read spans back over its REST interface."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from scripts.backends import _environments
from scripts.backends._server import Server
from scripts.backends._spans import SeenSpan, SeenSpans

_API = "/api/3.0/mlflow/traces"
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}


class MLflow(Server):
    """MLflow's tracking server with an empty database."""

    name = "mlflow"
    health = "/health"

    def command(self) -> list[str]:
        """The server's command line."""
        return [
            *(_environments.program("mlflow"), "server"),
            *("--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{self.directory / 'mlflow.db'}"),
            # Said of itself in every trace: nothing of this machine is to stand there.
            "--serve-artifacts",
            *("--artifacts-destination", str(self.directory / "artifacts")),
        ]

    def environment(self) -> Mapping[str, str]:
        """That it runs no jobs, which would be eight more processes, and tells nobody of itself."""
        return {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
        }

    def experiment(self, name: str) -> str:
        """Make an experiment, where traces are kept, and return its id."""
        return str(self.ask("/api/2.0/mlflow/experiments/create", {"name": name})["experiment_id"])

    def variables(self, experiment_id: str) -> dict[str, str]:
        """The environment of an application whose traces are to go into this experiment."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-mlflow-experiment-id={experiment_id}",
            # The server takes up to ten seconds for the first traces, because only then it imports what it needs.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "30",
        }

    def trace_ids(self, experiment_id: str) -> list[str]:
        """MLflow's ids of all traces of the experiment."""
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment_id}}
        asked: dict[str, Any] = {"locations": [where], "max_results": 500}
        found = []
        while True:
            page = self.ask(f"{_API}/search", asked)
            found += [trace["trace_id"] for trace in page.get("traces", [])]
            if not page.get("next_page_token"):
                return found
            asked["page_token"] = page["next_page_token"]

    def trace(self, trace_id: str) -> dict[str, Any]:
        """One trace with its spans, as MLflow answers it."""
        return dict(self.ask(f"{_API}/get?{urlencode({'trace_id': trace_id})}")["trace"])

    def spans(self, experiment_id: str) -> SeenSpans:
        """All spans of the experiment."""
        traces = map(self.trace, self.trace_ids(experiment_id))
        return SeenSpans(_seen(span) for trace in traces for span in trace["spans"])


def _seen(span: Mapping[str, Any]) -> SeenSpan:
    attributes = _plain(span["attributes"])
    usage = attributes.get("mlflow.chat.tokenUsage", {})
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
        tokens={name: int(usage[key]) for name, key in _TOKENS.items() if key in usage},
        model=attributes.get("mlflow.llm.model"),
        link_reasons=tuple(
            _plain(link["attributes"]).get("fastlane.link.reason", "") for link in span.get("links", ())
        ),
    )


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _plain(attributes: Any) -> dict[str, Any]:
    """Attributes of OTLP's JSON as plain values."""
    return {one["key"]: _value(one["value"]) for one in attributes}


def _value(value: Mapping[str, Any]) -> Any:
    ((kind, plain),) = value.items()
    if kind == "kvlist_value":
        return _plain(plain.get("values", []))
    if kind == "array_value":
        return [_value(one) for one in plain.get("values", [])]
    # 64-bit integers are text in the JSON of Protocol Buffers, by its definition.
    return int(plain) if kind == "int_value" else plain
