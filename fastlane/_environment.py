"""Yes or no from an environment variable, read the same way everywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import ConfigurationError

YES_OR_NO = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def flag(variable: str, environment: Mapping[str, str] = os.environ) -> bool | None:
    """Return whether a variable says yes, in any case; None if it is unset or empty.

    Raises ConfigurationError for any other value.
    """
    text = environment.get(variable, "").strip()
    if not text:
        return None
    if text.lower() not in YES_OR_NO:
        raise ConfigurationError(
            f"{variable}: expected 1, true, yes or on (yes), or 0, false, no, off or nothing (no), got {text!r:.60}"
        )
    return YES_OR_NO[text.lower()]


def is_disabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether FASTLANE_DISABLED asks for the stock client's behaviour. Raises ConfigurationError."""
    return flag("FASTLANE_DISABLED", environment) or False
