"""Whose calls share one limit: those of the same key, organisation and project. Never the key itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from fastlane.compat.clients import key_provider_of

# A gate's key is kept for as long as the process lives, and says nothing to anybody who sees it.
_SECRET = os.urandom(32)
# Replicas have to agree on a name. A key has more than 100 random bits, so that no digest of it can be searched.
_SHARED = b"fastlane pacing"
_CREDENTIALS = frozenset({"authorization", "api-key", "openai-organization", "openai-project"})


class Account(NamedTuple):
    """Digests of who calls."""

    here: bytes
    """By a random key of this process."""
    anywhere: str
    """The same in every process."""


class Accounts:
    """The account of one client, remembered while its key stays the same."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[tuple[Any, ...], Account] | None = None

    def of(self, client: Any, options: Any) -> Account:
        """Who makes a call with this client and these options."""
        given = options.headers
        own: tuple[str, ...] = ()
        if given and isinstance(given, Mapping):
            own = tuple(str(value) for name, value in given.items() if name.lower() in _CREDENTIALS)
        # A key that is asked for anew before every call says nothing about whose it is: whom it is asked of does.
        asked = key_provider_of(client)
        key = client.api_key if asked is None else id(asked)
        of = (key, client.organization, client.project, *own)
        known = self._known
        if known is not None and known[0] == of:
            return known[1]
        account = _account(of if asked is None else ("provider", *of[1:]), of)
        if not own:
            self._known = of, account
        return account


def _account(anywhere: tuple[Any, ...], here: tuple[Any, ...]) -> Account:
    return Account(
        blake2b(repr(here).encode(), key=_SECRET, digest_size=16).digest(),
        blake2b(repr(anywhere).encode(), key=_SHARED, digest_size=16).hexdigest(),
    )
