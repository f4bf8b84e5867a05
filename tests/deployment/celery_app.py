"""A Celery application whose client is made, and used, before the pool's processes are forked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery  # type: ignore[import-untyped]

import fastlane

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
FOLDER = Path(os.environ["CELERY_FOLDER"])

app = Celery("app", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": str(FOLDER),
    "data_folder_out": str(FOLDER),
    "processed_folder": str(FOLDER),
    "control_folder": str(FOLDER / "control"),
    "polling_interval": 0.05,
}
app.conf.worker_prefetch_multiplier = 1

client = fastlane.OpenAI(max_retries=0)
if "FORKS" in os.environ:  # the worker's main process, not the one that queues the tasks
    client.chat.completions.create(model="m", messages=MESSAGES)


@app.task  # type: ignore[untyped-decorator]
def call(number: int) -> None:
    """Make a call, and write down which process made it over which connection."""
    answer = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=20)
    record = fastlane.record_of(answer)
    assert record is not None
    text = f"{os.getpid()} {record.outcome} {record.connection_reused}"
    (FOLDER / f"{number}.result").write_text(text)
