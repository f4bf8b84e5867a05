"""A run as spans in a file: every request with its arm, so that `fastlane trace view` shows the arms side by side."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._clock import now_ns, wall_ns
from ..errors import ConfigurationError, MissingExtraError
from .recorded import Header, RecordedRun, Sample

if TYPE_CHECKING:
    from ..telemetry import ExperimentArm
    from ..telemetry.spans import SpanMaker

EXPERIMENT: Final = "bench"
COLD: Final = "bench, first requests"
"""The arms' first requests and those of the warm-up: an experiment of their own, because no figure includes them."""

_AT_ONCE = 500
_DISABLED = "OTEL_SDK_DISABLED"


def prepare_trace(path: Path) -> None:
    """See that spans can be written to `path`, which is emptied.

    Raises ConfigurationError where they cannot, and MissingExtraError where what writes them is not installed.
    """
    try:
        import opentelemetry.exporter.otlp.json.file  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("telemetry", "opentelemetry-exporter-otlp-json-file") from error
    if os.environ.get(_DISABLED, "").strip().lower() == "true":
        raise ConfigurationError(
            f"-o FILE.jsonl needs OpenTelemetry's SDK, which {_DISABLED} has switched off: unset it"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    except OSError as error:
        raise ConfigurationError(
            f"-o needs a file that can be written to, and {path} is none: {error.strerror or error}"
        ) from error


def write_trace(recorded: RecordedRun, path: Path) -> None:
    """Write the spans of every request of a run, by the client's own record or else by what its caller saw.

    Raises OSError.
    """
    from opentelemetry.exporter.otlp.json.file import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider, sampling
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from ..telemetry.spans import SpanMaker

    made = InMemorySpanExporter()
    provider = TracerProvider(
        sampler=sampling.ALWAYS_ON, resource=Resource({"service.name": "fastlane bench"}), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(made))
    maker = SpanMaker(provider)
    offset_ns = wall_ns() - now_ns()
    with path.open("w", encoding="utf-8") as file:
        exporter = FileSpanExporter(stream=file)
        for at in range(0, len(recorded.samples), _AT_ONCE):
            for sample in recorded.samples[at : at + _AT_ONCE]:
                _tell(maker, sample, recorded, offset_ns)
            if exporter.export(made.get_finished_spans()) is not SpanExportResult.SUCCESS:
                raise OSError("OpenTelemetry's exporter to files failed, and its log says why")
            made.clear()
    provider.shutdown()


def _tell(maker: SpanMaker, sample: Sample, recorded: RecordedRun, offset_ns: int) -> None:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

    from ..telemetry.attributes import call_attributes, experiment_attributes, provider_name, server_attributes
    from ..telemetry.spans import end_span, make_spans_below, status_of

    record = sample.record
    model = recorded.header.model
    origin = _origin(recorded) if record is None else record.origin
    issued_ns = sample.issued_ns + offset_ns if record is None else record.timeline.started_wall_ns
    span = maker.start(
        f"chat {model}",
        Context(),
        issued_ns,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_name(origin),
            **server_attributes(origin),
            "gen_ai.request.model": model,
            "gen_ai.request.stream": True,
            "fastlane.bench.conversation": sample.conversation,
            "fastlane.bench.turn": sample.turn,
        },
        kind=SpanKind.CLIENT,
    )
    marks = experiment_attributes(_experiment(sample, recorded.header))
    if record is not None:
        ended_ns = issued_ns + record.timeline.ended_ns - record.timeline.started_ns
        end_span(span, ended_ns, {**call_attributes(record), **marks}, status_of(record))
        make_spans_below(maker, Context(), record, "phases", span.get_span_context())
        return
    end_span(span, sample.ended_ns + offset_ns, {**_seen(sample), **marks}, sample.error)


def _origin(recorded: RecordedRun) -> str:
    """Where all samples of a run went: what a client with records says."""
    return next((sample.record.origin for sample in recorded.samples if sample.record is not None), "")


def _seen(sample: Sample) -> dict[str, Any]:
    """What a client without records lets its caller see of a request."""
    told: dict[str, Any] = {
        "gen_ai.usage.input_tokens": sample.input_tokens,
        "gen_ai.usage.cache_read.input_tokens": sample.cached_tokens,
        "gen_ai.usage.output_tokens": sample.output_tokens,
        "fastlane.time_to_first_token": sample.time_to_first_token_s,
        "fastlane.api_end_to_end.duration": sample.api_end_to_end_s,
        "gen_ai.response.finish_reasons": None if sample.finish_reason is None else (sample.finish_reason,),
        "error.type": None if sample.error is None else sample.error.partition(" ")[0],
    }
    if len(sample.token_ns) > 1:
        decode_s = (sample.token_ns[-1] - sample.token_ns[0]) / 1e9
        told["fastlane.decode.duration"] = decode_s
        if sample.output_tokens is not None and decode_s:
            told["fastlane.decode.tokens_per_second"] = (sample.output_tokens - 1) / decode_s
    return {name: value for name, value in told.items() if value is not None}


def _experiment(sample: Sample, header: Header) -> ExperimentArm:
    """Return the experiment of a request: one for each reference, because each arm is compared with its own."""
    from ..telemetry import ExperimentArm

    unit = "/".join(map(str, sample.key))
    against = f", against {header.reference_of(sample.arm).name}" if len(header.references) > 1 else ""
    return ExperimentArm(
        name=(EXPERIMENT if sample.part == "measured" else COLD) + against,
        arm=sample.arm,
        unit_id_hash=hashlib.blake2b(unit.encode(), digest_size=8).hexdigest(),
    )
