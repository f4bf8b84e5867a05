"""Clients for other providers than the client's own, which carry nothing of that client there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openai import NotGiven

from fastlane._fork import new_lock, new_rlock
from fastlane.compat.clients import OVERRIDE_CAST_TO_HEADER, http_client_of, validates_strictly
from fastlane.errors import ConfigurationError

if TYPE_CHECKING:
    from .catalog.models import CatalogModel

# openai's client says with these how the response is to be read. None of them says whose the call is.
_OWN_PREFIX = "x-stainless-"
_HEADER = re.compile(r"[!#-'*+.0-9^_`a-z|~-]+")
_OWN = frozenset({"accept", OVERRIDE_CAST_TO_HEADER.lower()})

_CREDENTIALS = frozenset({
    "api-key", "authorization", "cookie", "openai-organization", "openai-project", "proxy-authorization",
    "x-api-key", "x-goog-api-key",
})  # fmt: skip


def checked_forward(names: Any) -> tuple[str, ...]:
    """Return the names of headers that may go to other providers, in lower case.

    Raises ConfigurationError for anything but names of headers, and for headers that hold a credential.
    """
    listed = names if isinstance(names, list | tuple | set | frozenset) else [None]
    lower = [name.lower() if isinstance(name, str) else "" for name in listed]
    if not all(map(_HEADER.fullmatch, lower)):
        # It may have the header's value in it, and is not quoted.
        raise ConfigurationError('forward_headers takes a list of names such as ["traceparent"], without values')
    for name in lower:
        if name in _CREDENTIALS:
            raise ConfigurationError(
                f"forward_headers takes no header that holds a credential, got {name!r}: name the variable of each "
                "provider's own key in the catalog (api_key_env)"
            )
    return tuple(lower)


def options_for(options: Any, client: Any, forward: Sequence[str] = ()) -> Any:
    """Return the options of a call for another provider than that of the caller's `client`.

    No header, query or additional field of the caller's goes along but the headers that `forward` names in lower case,
    and those of openai's client. The timeout and the retries of the caller's client are written into them, because the
    other client has its own. The body is that of `json_data`, into which `extra_body` has been merged already.
    """
    headers = options.headers if isinstance(options.headers, Mapping) else {}
    changes: dict[str, Any] = {
        "url": options.url.partition("?")[0],
        "headers": {name: value for name, value in headers.items() if _may_go(name.lower(), forward)},
        "params": {},
        "extra_json": None,
    }
    if isinstance(options.timeout, NotGiven):
        changes["timeout"] = client.timeout
    if isinstance(options.max_retries, NotGiven):
        changes["max_retries"] = client.max_retries
    return options.model_copy(update=changes)


def _may_go(header: str, forward: Sequence[str]) -> bool:
    return header in _OWN or header in forward or header.startswith(_OWN_PREFIX)


NO_KEY = "none"
"""What is sent as the key to an upstream that needs none: a server that looks at no key takes any."""


def key_of(model: CatalogModel) -> str | None:
    """Return the key that a model's upstream is called with now; None if it needs one that cannot be had."""
    if model.api_key_env is None:
        return NO_KEY
    # Keys that come out of files end in a line feed.
    key = os.environ.get(model.api_key_env, "").strip()
    # An HTTP library that refuses a header quotes it in its error.
    return key if key and key.isascii() and key.isprintable() else None


def missing_key(model: CatalogModel) -> str | None:
    """Return why there is no key for a model's upstream, with the name of its variable; None if there is one."""
    if key_of(model) is not None:
        return None
    is_set = bool(os.environ.get(model.api_key_env or "", "").strip())
    return f"{model.api_key_env} holds what no HTTP header can" if is_set else f"{model.api_key_env} is not set"


_Key = tuple[str, str | None, bool, bool]
"""A base URL, the variable of its key, whether the client is asynchronous, and whether it validates strictly."""


class UpstreamClients:
    """The clients of one pipeline for other upstreams; made when they are first needed. Thread-safe.

    Each has the pipeline, the plays and the log of calls of the caller's client, and the shared connections. It has
    none of its credentials, organisation, project, headers, query and HTTP client, and nothing that openai's client
    takes from its environment. It is of fastlane's own class: what a subclass overrides is about its own provider.
    """

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._made: dict[_Key, Any] = {}

    def of(self, client: Any, model: CatalogModel) -> Any | None:
        """Return the client that a model is called with: the caller's own if the catalog names no base URL.

        None if its key is missing; `missing_key` says why. The key is that of the environment at this moment. A
        caller's client that is closed is returned itself, to fail as it does by itself.
        """
        if model.base_url is None or http_client_of(client).is_closed:
            return client
        key = key_of(model)
        if key is None:
            return None
        which = _key(client, model.base_url, model)
        with self._lock:
            made = self._made.get(which)
            if made is None or http_client_of(made).is_closed:
                made = self._made[which] = client._upstream_client(model.base_url, key)
        if made.api_key != key:
            made.api_key = key
        return made

    def close(self) -> None:
        """Close the synchronous ones; a later call makes new ones."""
        for client in self._taken(asynchronous=False):
            client.close()

    async def aclose(self) -> None:
        """Close the asynchronous ones, as far as they are of this event loop; a later call makes new ones."""
        for client in self._taken(asynchronous=True):
            await client.close()

    def _taken(self, *, asynchronous: bool) -> list[Any]:
        with self._lock:
            return [self._made.pop(which) for which in list(self._made) if which[2] is asynchronous]


def _key(client: Any, base_url: str, model: CatalogModel) -> _Key:
    return base_url, model.api_key_env, client._asynchronous, validates_strictly(client)


_making = new_lock()


def upstream_clients_of(pipeline: Any) -> UpstreamClients:
    """Return those of a pipeline, the same to all of its threads."""
    with _making:
        if pipeline.other_clients is None:
            pipeline.other_clients = UpstreamClients()
        made: UpstreamClients = pipeline.other_clients
    return made
