"""Secrets in every field of a call, and everything that is exported, logged and stored of the calls."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from fastlane.traces import entries, page, read_spans
from tests.telemetry.conftest import CapturedTelemetry

_MARK = "zq7"


class Planted:
    """Makes secrets, each another, and remembers where they were put."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}

    def word(self, where_planted: str) -> str:
        """A secret for a field of plain words, such as a header."""
        return self.secrets.setdefault(
            where_planted, f"{_MARK}{base64.b32encode(where_planted.encode()).decode().strip('=')}x"
        )

    def text(self, where_planted: str) -> str:
        """A secret for a field of any text: what escaping, quoting and encoding change is in it."""
        return self.secrets.setdefault(
            where_planted, f'{self.word(f"the beginning of {where_planted}")} "für" 100 % geheim/\n'
        )


def forms(secret: str) -> Iterator[bytes]:
    """A secret in every encoding that it could be written in."""
    raw = secret.encode()
    yield raw
    for written in _written(secret):
        yield written.encode()
        for again in _written(written):  # JSON in a text that is written as JSON
            yield again.encode()
    for safe in ("", "/"):
        yield quote(secret, safe=safe).encode()
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for at in range(3):  # where its first byte may stand in a group of three
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            coded = encode(bytes(at) + raw)
            # The characters that its neighbours have no part in.
            yield coded[(0, 2, 3)[at] : (at + len(raw)) // 3 * 4]


def _written(text: str) -> Iterator[str]:
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield json.dumps(text)[1:-1]
    yield repr(text)[1:-1]


def leaks(planted: Planted, texts: dict[str, bytes], allowed: Collection[str] = ()) -> list[str]:
    """Where which secrets are, in whatever encoding."""
    found = set()
    for where_planted, secret in planted.secrets.items():
        if where_planted in allowed or where_planted.removeprefix("the beginning of ") in allowed:
            continue
        for form in set(forms(secret)):
            found |= {f"{where_planted} is in {name}" for name, text in texts.items() if form in text}
    return sorted(found)


class LogLines(logging.Handler):
    """The log of fastlane and of OpenTelemetry at DEBUG.

    openai and the HTTP library say at DEBUG what they send, prompts and all: those logs are theirs.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self._before: list[tuple[logging.Logger, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {vars(record)!r}")

    def __enter__(self) -> Self:
        for name in ("fastlane", "opentelemetry"):
            logger = logging.getLogger(name)
            self._before.append((logger, logger.level))
            logger.setLevel(logging.DEBUG)
            logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for logger, level in self._before:
            logger.removeHandler(self)
            logger.setLevel(level)


def exported(captured: CapturedTelemetry, where: Path) -> dict[str, bytes]:
    """Everything that is exported, in memory, in both forms of OTLP, and on the page that is made of a file."""
    spans, metrics = captured.spans, captured.reader.get_metrics_data()
    texts = {"spans": "\n".join(f"{span.to_json()} {span.events!r} {span.links!r} {span.status!r}" for span in spans)}
    texts["settings"] = f"{captured.settings!r}"
    found = {name: text.encode() for name, text in texts.items()}
    found["spans as protobuf"] = encode_spans(spans).SerializeToString()
    kept = where / "spans.jsonl"
    in_file: Any = FileSpanExporter(kept)
    in_file.export(spans)
    in_file.shutdown()
    if metrics is not None:
        found["metrics"] = f"{metrics.to_json()} {metrics!r}".encode()
        found["metrics as protobuf"] = encode_metrics(metrics).SerializeToString()
        in_file = FileMetricExporter(where / "metrics.jsonl")
        in_file.export(metrics)
        in_file.shutdown()
    for file in where.iterdir():
        found[f"the file {file.name}"] = file.read_bytes()
    read = read_spans(kept.read_bytes(), kept.name)
    found["the page"] = page(read, entries(read.spans)).encode()
    return found


def stored(client: Any) -> dict[str, bytes]:
    """Everything that a client keeps of its calls."""
    report = client.report()
    texts = {
        "the report": f"{report} {report!r} {json.dumps(report.to_dict())}",
        "the client": repr(client),
        "records": "\n".join(f"{record!r} {json.dumps(record.to_dict())}" for record in client.calls),
        "records' plays": "\n".join(f"{record.plays!r}" for record in client.calls),
    }
    return {name: text.encode() for name, text in texts.items()}
