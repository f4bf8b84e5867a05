"""What environment variables set in telemetry, and the errors for unknown values."""

from __future__ import annotations

import pytest

from fastlane.telemetry import settings


@pytest.mark.parametrize(
    ("value", "level"), [("1", "off"), ("true", "off"), ("on", "off"), ("0", "call"), ("off", "call")]
)
def test_disabling_fastlane_disables_its_telemetry(monkeypatch: pytest.MonkeyPatch, value: str, level: str) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)
    settings.use(None)

    assert settings.current().level == level
    settings.use(None)
