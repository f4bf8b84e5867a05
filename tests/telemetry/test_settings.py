"""What environment variables set in telemetry, and the errors for unknown values."""

from __future__ import annotations

import pytest

from fastlane import ConfigurationError
from fastlane.telemetry import TelemetrySettings, configure, settings


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("FASTLANE_TELEMETRY_LEVEL", "everything", "expected off, call, attempts, phases, got 'everything'"),
        ("FASTLANE_TELEMETRY_PROPAGATE", "maybe", "expected .* got 'maybe'"),
    ],
)
def test_invalid_telemetry_setting_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"{variable}: {expected}"):
        configure()


def test_invalid_telemetry_level_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match=r'TelemetrySettings\(level=...\) takes "off", "call", "attempts" or "phases"'
    ):
        TelemetrySettings(level="all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "level"), [("1", "off"), ("true", "off"), ("on", "off"), ("0", "call"), ("off", "call")]
)
def test_disabling_fastlane_disables_its_telemetry(monkeypatch: pytest.MonkeyPatch, value: str, level: str) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)
    settings.use(None)

    assert settings.current().level == level
    settings.use(None)
