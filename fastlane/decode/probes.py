"""Whether a part of openai or its HTTP client is as a fast path needs it, and whether its methods are its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter, is_
from types import FunctionType
from typing import Any

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


# Applications override methods, and instrumentations replace them.

_PACKAGES = ("openai", "fastlane", "httpx2", "httpx")


class OwnMethods:
    """Methods and properties of classes, asked about before every call: that takes microseconds."""

    def __init__(self, *owners: tuple[type[Any], Iterable[str]]) -> None:
        """`owners`: classes, each with the names of its methods.

        A method may call the one that it overrides: name both classes. Names that a class does not have are left out,
        because another version of openai may have others.
        """
        self._owners = [_Owner(owner, [name for name in names if hasattr(owner, name)]) for owner, names in owners]

    @property
    def are_own(self) -> bool:
        """Whether all of them are the code of openai's package, of its HTTP library, or of this one."""
        for owner in self._owners:
            found = owner.read(owner.kind)
            # By identity: an instrumentation's wrapper may claim to equal what it wraps.
            seen, were_own = owner.last
            if not seen or not all(map(is_, found, seen)):
                were_own = all(is_own(owner.kind, name) for name in owner.names)
                owner.last = (found, were_own)
            if not were_own:
                return False
        return True


class _Owner:
    def __init__(self, kind: type[Any], names: list[str]) -> None:
        self.kind = kind
        self.names = names
        self.read: Any = attrgetter(*names, "__class__", "__mro__")
        self.last: tuple[tuple[Any, ...], bool] = ((), False)
        """What was found the last time, and whether it was all its own: one value, for threads that ask meanwhile."""


def is_own(owner: type[Any], name: str) -> bool:
    """Whether a method or property of a class is the code of openai's package, of its HTTP library, or of this one."""
    base = next(base for base in owner.__mro__ if name in base.__dict__)
    found = base.__dict__[name]
    if type(found) is property:
        found = found.fget
    elif type(found) is staticmethod:
        found = found.__func__
    # A wrapper takes over name and module of what it wraps; whose code it is, its globals say.
    return type(found) is FunctionType and str(found.__globals__.get("__name__")).partition(".")[0] in _PACKAGES


def nobody_is_between(client: type[Any], names: frozenset[str]) -> bool:
    """Whether no class of an application's with one of these methods stands between a client's of ours and openai's.

    One does in `class Mine(fastlane.OpenAI, Theirs)`, where openai's own way would lead to it.
    """
    packages = [base.__module__.partition(".")[0] for base in client.__mro__]
    behind = max((at for at, package in enumerate(packages) if package == "fastlane"), default=-1) + 1
    return all(
        package == "openai" or names.isdisjoint(vars(base))
        for base, package in zip(client.__mro__[behind:], packages[behind:], strict=True)
    )
