"""A fact of a provider, for tests that register facts of their own."""

from __future__ import annotations

from datetime import date
from typing import Any

from fastlane.providers import Fact


def fact(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://example.com/docs", checked=date(2026, 11, 22), evidence="documented")
