"""What other processes have told of attempts."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane.knowledge.prediction._sighting import Sighting

PLAIN: dict[str, Any] = {"model": "m", "origin": "https://api.example.com:443"}


def test_sighting_is_what_was_written() -> None:
    seen = Sighting(**PLAIN, first_token_s=0.5, output_tokens=7, failure="server", rest_s=3.0)
    assert Sighting.from_json({**seen.to_json(), "newer": 1}) == seen


@pytest.mark.parametrize("value", ["7", True, None, [], -1, float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("name", ["rest_s", "first_token_s", "input_tokens"])
def test_sighting_with_a_number_nobody_writes_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} expects a finite number"):
        Sighting.from_json({**PLAIN, name: value})
