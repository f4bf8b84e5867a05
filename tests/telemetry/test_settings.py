"""What environment variables set in telemetry, and the errors for unknown values."""

from __future__ import annotations

import pytest

from fastlane import ConfigurationError
from fastlane.telemetry import TelemetrySettings
from fastlane.telemetry.settings import from_environment


def test_invalid_telemetry_setting_names_the_variable() -> None:
    with pytest.raises(
        ConfigurationError, match=r"FASTLANE_TELEMETRY_LEVEL: expected off, call, attempts, phases, got"
    ):
        from_environment({"FASTLANE_TELEMETRY_LEVEL": "everything"})
    with pytest.raises(ConfigurationError, match=r"FASTLANE_TELEMETRY_PROPAGATE: expected .* got 'maybe'"):
        from_environment({"FASTLANE_TELEMETRY_PROPAGATE": "maybe"})
    with pytest.raises(
        ConfigurationError, match=r'TelemetrySettings\(level=...\) takes "off", "call", "attempts" or "phases"'
    ):
        TelemetrySettings(level="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["1", "true", "on"])
def test_disabling_fastlane_disables_its_telemetry(value: str) -> None:
    assert from_environment({"FASTLANE_DISABLED": value}).level == "off"
    assert from_environment({"FASTLANE_DISABLED": "0"}).level == "call"
    assert from_environment({"FASTLANE_DISABLED": "off"}).level == "call"
