"""Names that tell a call from every other, of this process and of others."""

from __future__ import annotations

import itertools
import secrets

from .._fork import in_child

_numbers = itertools.count(1)


class _Process:
    """Tells the calls of this process from those of others."""

    prefix = secrets.token_hex(4)


@in_child
def _renew_prefix() -> None:
    _Process.prefix = secrets.token_hex(4)


def next_number() -> int:
    """Count one more call."""
    return next(_numbers)


def call_id(number: int) -> str:
    """The name of a call of this process by its number."""
    return f"{_Process.prefix}-{number}"
