"""What tests ask of checks' answers, and the runs that several of them check."""

from __future__ import annotations

from typing import Any

from fastlane.bench import Checked, CheckResult, Sample
from tests.bench.recorded_runs import an_arm


def about(found: Checked, check: str, arm: str | None = "fastlane") -> list[CheckResult]:
    """Return what one check says of one arm; of all arms together for None."""
    return [each for each in found.results if each.check == check and each.arm == arm]


def level(found: Checked, check: str, arm: str | None = "fastlane") -> str:
    """Return the worst that one check says of one arm."""
    levels = {each.level for each in about(found, check, arm)}
    return next(grade for grade in ("refused", "flagged", "passed", "not checked") if grade in levels)


def own_record(sample: Sample, *, reused: bool) -> dict[str, Any]:
    """Return the call record of a client of fastlane."""
    attempt = {"connection_reused": reused, "connection_id": "c", "wire": {"connect_started_ns": sample.issued_ns}}
    return {"attempts": [attempt], "metrics": {"time_to_first_token_s": None}}


def playing(play: str, **fields: Any) -> dict[str, Any]:
    """Return the settings of a run in which arm "fastlane" differs from the others by one play."""
    client = {"client": "fastlane.OpenAI", "plays": ()}
    arms = (an_arm("baseline", **client), an_arm("baseline-again", **client), an_arm("fastlane", **client))
    return {"arms": (*arms[:2], an_arm("fastlane", client="fastlane.OpenAI", plays=(play,))), **fields}
