"""The key of an upstream, read from the environment when it is needed and kept nowhere but in its client."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastlane.plays.routing.catalog._models import CatalogModel

NO_KEY = "none"
"""What is sent as the key to an upstream that needs none: a server that looks at no key takes any."""


def key_of(model: CatalogModel) -> str | None:
    """Return the key that a model's upstream is called with now; None where it needs one that cannot be had."""
    if model.api_key_env is None:
        return NO_KEY
    # Keys that come out of files end in a line feed.
    key = os.environ.get(model.api_key_env, "").strip()
    return key if key and _can_be_sent(key) else None


def missing_key(model: CatalogModel) -> str | None:
    """Return why there is no key for a model's upstream, with the name of its variable; None where there is one."""
    if model.api_key_env is None:
        return None
    key = os.environ.get(model.api_key_env, "").strip()
    if not key:
        return f"{model.api_key_env} is not set"
    return None if _can_be_sent(key) else f"{model.api_key_env} holds what no HTTP header can"


def _can_be_sent(key: str) -> bool:
    # An HTTP library that refuses a header quotes it in its error.
    return key.isascii() and key.isprintable()
