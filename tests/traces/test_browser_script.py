from __future__ import annotations

import pytest

from scripts.servers import UnavailableError, main, program


def test_missing_chromium_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(UnavailableError, match="no chromium is installed, and there is no apt-get"):
        program("chromium")
    assert main(["--install", "chromium"]) == 1
    assert capsys.readouterr().err.startswith("no chromium is installed")
