"""What is known of the upstreams that a call may go to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Upstreams(NamedTuple):
    """What is known of the upstreams of a call, asked without opening or waiting for anything."""

    outlook: Callable[[Any], Any]
    """Of a model of the catalog: what is known of the connection to it (`transport._outlook.Outlook`)."""
    missing_key: Callable[[Any], str | None]
    """Of a model of the catalog: why it cannot be called for want of a key; None where it can."""
    encoded_share: Callable[[str], float | None] | None = None
    """Of an origin: the share of its bytes that a body has there once it is encoded; None where none is."""
    is_checked: bool = False
    """Whether a play checks answers against their schema, so that a provider need not."""
