"""No id of a unit and no word of a call is in what an experiment stores, logs or exports."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane.experiments import unit
from scripts.servers import RedisServer
from tests.experiments.conftest import BAD_REQUEST, CONTROL, MODEL, Make
from tests.telemetry.conftest import Listening, attributes_of, listening as listening
from tests.telemetry.planted import forms

SECRETS = (
    "zq7-user-of-the-context",
    "zq7-user-of-the-body",
    "zq7-prompt",
    "zq7-salt",
    "sk-zq7-key",
    "zq7-reason-of-a-bug",
)


def asked(arguments: dict[str, Any], experiment: fastlane.experiments.Experiment) -> list[fastlane.CallRecord]:
    prompt: Any = [{"role": "user", "content": "zq7-prompt"}]
    with fastlane.OpenAI(**{**arguments, "api_key": "sk-zq7-key"}, experiment=experiment, max_retries=0) as client:
        for number in range(60):
            try:
                if number % 2:
                    with unit(f"zq7-user-of-the-context-{number}"):
                        client.chat.completions.create(model=MODEL, messages=prompt)
                else:
                    client.chat.completions.create(model=MODEL, messages=prompt, user="zq7-user-of-the-body")
            except fastlane.BadRequestError:
                pass
        experiment.report()
        return list(client.calls)


def settings() -> dict[str, Any]:
    return {
        "arms": {"control": CONTROL, "broken": (*CONTROL, BAD_REQUEST)},
        "unit": lambda body: body["user"],
        "salt": "zq7-salt",
    }


def assert_nothing_leaks(data: bytes) -> None:
    assert [secret for secret in SECRETS for form in forms(secret) if form in data] == []


def test_nothing_leaks_into_files_logs_spans_metrics_and_records(
    arguments: dict[str, Any], make: Make, tmp_path: Path, listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="fastlane")
    captured = listening()
    experiment = make(**settings())
    records = asked(arguments, experiment)
    experiment.end("broken")

    spans, metrics = captured.spans, captured.points()
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    report = experiment.report()
    everything = "\n".join([
        *(span.to_json() for span in spans), repr(metrics), caplog.text, repr(records), str(report),
        repr(report.to_dict()), repr([record.to_dict() for record in records]), repr(experiment),
    ])  # fmt: skip

    assert report["broken"].ended is not None
    assert b"mark-2026" in files
    assert_nothing_leaks(files + everything.encode())
    # The arm and a hash of the unit are there.
    marked = [attributes_of(span) for span in spans]
    hashes = {record.experiment.unit_id_hash for record in records if record.experiment is not None}
    assert {one["fastlane.experiment.arm"] for one in marked} == {"control", "broken"}
    assert {one["fastlane.experiment.name"] for one in marked} == {"mark-2026"}
    assert {one["fastlane.experiment.unit_id_hash"] for one in marked} == hashes
    assert len(hashes) == 31
    labels = [point.attributes for points in metrics.values() for point in points]
    assert {one.get("fastlane.experiment.arm") for one in labels} >= {"control", "broken"}
    assert not any("fastlane.experiment.unit_id_hash" in one for one in labels)


def test_nothing_leaks_into_redis(arguments: dict[str, Any], make: Make, redis_server: RedisServer) -> None:
    import redis

    asked(arguments, make("leaks", store=redis_server.url, **settings()))
    server: Any = redis.Redis.from_url(redis_server.url)
    kept = b"".join(key + server.get(key) for key in server.keys("fastlane:experiment:*"))
    server.close()

    assert b"leaks" in kept
    assert_nothing_leaks(kept)
