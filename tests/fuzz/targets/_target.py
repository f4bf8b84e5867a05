"""What has to be true of whatever a reader is fed."""

from __future__ import annotations


def holds(truth: object, what: str, *context: object) -> None:
    """Raise AssertionError, with what came, unless something is true."""
    if not truth:
        raise AssertionError(": ".join((what, *(f"{one!r:.2000}" for one in context))))
