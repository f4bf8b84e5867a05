"""Whether methods are openai's own at the moment: applications override them, and instrumentations replace them."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, is_
from types import FunctionType
from typing import Any

_PACKAGES = ("openai", "fastlane", "httpx2", "httpx")


class OwnMethods:
    """Methods and properties of classes, asked about before every call: that takes about a microsecond."""

    def __init__(self, names: Iterable[str], *owners: type[Any]) -> None:
        # Another version of openai may have others. A method may call the one that it overrides: both are looked at.
        self._owners = [_Owner(owner, [name for name in names if hasattr(owner, name)]) for owner in owners]

    @property
    def are_own(self) -> bool:
        """Whether all of them are the code of openai's package, of its HTTP library, or of this one."""
        for owner in self._owners:  # noqa: SIM110 - a generator costs as much as all of the rest
            if not owner.has_own():
                return False
        return True


class _Owner:
    def __init__(self, owner: type[Any], names: list[str]) -> None:
        self._owner = owner
        self._names = names
        self._read: Any = attrgetter(*names, "__class__", "__mro__")
        self._last: tuple[tuple[Any, ...], bool] = ((), False)
        """What was found the last time, and whether it was all its own: one value, for threads that ask meanwhile."""

    def has_own(self) -> bool:
        found = self._read(self._owner)
        # By identity: an instrumentation's wrapper may claim to equal what it wraps.
        seen, were_own = self._last
        if not seen or not all(map(is_, found, seen)):
            were_own = all(is_own(self._owner, name) for name in self._names)
            self._last = (found, were_own)
        return were_own


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
