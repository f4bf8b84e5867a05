"""By what an upstream is told from every other."""

from __future__ import annotations

from typing import NamedTuple


class Upstream(NamedTuple):
    """A model at a place."""

    model: str
    """As the provider there knows it."""
    origin: str
    """scheme://host:port."""
