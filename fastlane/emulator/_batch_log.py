"""What the provider really did with files and batches: every file, every batch and every line that was carried out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.emulator import _tokens


def prompt_digest(body: Mapping[str, Any]) -> str:
    """Return by what `LineLog.prompt` tells whose prompt was answered: a digest of messages, input or prompt."""
    given = next((body[name] for name in ("messages", "input", "prompt") if name in body), None)
    return _tokens.fingerprint(json.dumps(given, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLog:
    """One file: an upload, or what a batch wrote. Moments are `fastlane._clock.now_ns`."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_ns: int
    deleted_ns: int | None

    def deleted(self, now: int) -> FileLog:
        """Return it as it is when deleted."""
        return dataclasses.replace(self, deleted_ns=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLog:
    """One batch, as it is now."""

    id: str
    input_file_id: str
    input_filename: str | None
    metadata: Mapping[str, str]
    endpoint: str
    status: str
    total: int
    completed: int
    failed: int
    created_ns: int
    ended_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLog:
    """One line that was carried out, whatever came of it; lines that expired or were cancelled have none."""

    batch_id: str
    custom_id: str
    prompt: str
    """See `prompt_digest`."""
    status: int
    """Of its response; 0 where it has none."""
    written: bool
    """Whether it stands in one of the batch's files (see `BatchSettings.missing_share`)."""
    done_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """Everything that the provider did with files and batches since the log was last cleared."""

    files: tuple[FileLog, ...]
    batches: tuple[BatchLog, ...]
    lines: tuple[LineLog, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Offline:
        """Rebuild what `to_json` made."""
        return cls(
            files=tuple(FileLog(**each) for each in record["files"]),
            batches=tuple(BatchLog(**each) for each in record["batches"]),
            lines=tuple(LineLog(**each) for each in record["lines"]),
        )
