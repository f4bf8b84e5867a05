"""Whether a part of openai or its HTTP client is as a fast path needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("fastlane")

_found: dict[str, bool] = {}


def unexpected_seams() -> list[str]:
    """Return the seams that were found to be otherwise than expected."""
    return [seam for seam, found in _found.items() if not found]


def holds(seam: str, check: Callable[[], bool]) -> bool:
    """Whether `check` says that the seam is as expected; asked the first time only.

    Where it is not, or the check itself fails, one warning says that the stock client's own path is taken: slower,
    and nothing else. `seam` names what was looked at, such as "openai.Stream".
    """
    found = _found.get(seam)
    if found is None:
        reason = ""
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - a part that is missing is a part that is not as expected
            found, reason = False, f" ({type(error).__name__})"
        _found[seam] = found
        if not found:
            log.warning(
                "%s is not what this version of fastlane expects%s: the stock client's own path is taken instead, "
                "which gives the same results and costs more CPU.",
                seam,
                reason,
            )
    return found
