"""Clients for other providers than the client's own, which carry nothing of that client there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from openai import NotGiven

from fastlane._fork import new_lock, new_rlock
from fastlane.compat.clients import OVERRIDE_CAST_TO_HEADER, http_client_of, transport_of, validates_strictly
from fastlane.compat.requests import changed_options
from fastlane.errors import ConfigurationError
from fastlane.transport.pool.pool import UNKNOWN, ConnectionForecast

if TYPE_CHECKING:
    from .catalog.models import CatalogModel

FORWARDED = ("traceparent", "tracestate")
"""Headers of a call that go to every provider by default: they tie its spans together
(https://www.w3.org/TR/trace-context/). `baggage` is not among them, since applications put what they like into it."""

# openai's client says with these how it is to read the answer. None of them says whose the call is.
_OWN_PREFIX = "x-stainless-"
_OWN = frozenset({"accept", OVERRIDE_CAST_TO_HEADER.lower()})

_CREDENTIALS = frozenset({
    "api-key", "authorization", "cookie", "openai-organization", "openai-project", "proxy-authorization",
    "x-api-key", "x-goog-api-key",
})  # fmt: skip


def checked_forward(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of headers that may go to other providers, in lower case.

    Raises ConfigurationError for what is no header's name, and for one that holds a credential.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigurationError(
            f'forward_headers takes a list of names such as ["traceparent"], got {type(names).__name__}'
        )
    checked = []
    for name in names:
        if not isinstance(name, str) or not name or not name.isascii() or any(one in " :\r\n\t" for one in name):
            # It may have the header's value in it, and is not quoted.
            raise ConfigurationError('forward_headers takes names of headers such as "traceparent", without values')
        if name.lower() in _CREDENTIALS:
            raise ConfigurationError(
                f"forward_headers takes no header that holds a credential, got {name!r}: name the variable of each "
                "provider's own key in the catalog (api_key_env)"
            )
        checked.append(name.lower())
    return tuple(checked)


def forwarded(headers: Any, forward: Sequence[str] = FORWARDED) -> dict[str, Any]:
    """Return those of a call's headers that another provider may see."""
    if not isinstance(headers, Mapping):
        return {}
    allowed = _OWN | (frozenset(forward) - _CREDENTIALS)
    return {
        name: value
        for name, value in headers.items()
        if (lower := name.lower()) in allowed or lower.startswith(_OWN_PREFIX)
    }


def options_for(options: Any, client: Any, forward: Sequence[str] = FORWARDED) -> Any:
    """Return the options of a call for another provider than that of the caller's `client`.

    No header, query or additional field of the caller's goes along but the headers that `forward` names and those of
    openai's client. The timeout and the retries of the caller's client are written into them, because the other client
    has its own. The body is that of `json_data`, into which `extra_body` has been merged already.
    """
    changes: dict[str, Any] = {
        "url": options.url.partition("?")[0],
        "headers": forwarded(options.headers, forward),
        "params": {},
        "extra_json": None,
    }
    if isinstance(options.timeout, NotGiven):
        changes["timeout"] = client.timeout
    if isinstance(options.max_retries, NotGiven):
        changes["max_retries"] = client.max_retries
    return changed_options(options, changes)


NO_KEY = "none"
"""What is sent as the key to an upstream that needs none: a server that looks at no key takes any."""


def key_of(model: CatalogModel) -> str | None:
    """Return the key that a model's upstream is called with now; None where it needs one that cannot be had."""
    if model.api_key_env is None:
        return NO_KEY
    # Keys that come out of files end in a line feed.
    key = os.environ.get(model.api_key_env, "").strip()
    # An HTTP library that refuses a header quotes it in its error.
    return key if key and key.isascii() and key.isprintable() else None


def missing_key(model: CatalogModel) -> str | None:
    """Return why there is no key for a model's upstream, with the name of its variable; None where there is one."""
    if key_of(model) is not None:
        return None
    is_set = bool(os.environ.get(model.api_key_env or "", "").strip())
    return f"{model.api_key_env} holds what no HTTP header can" if is_set else f"{model.api_key_env} is not set"


_making = new_lock()

_Key = tuple[str, str | None, bool, bool]
"""A base URL, the variable of its key, whether the client is asynchronous, and whether it validates strictly."""


class _Known(NamedTuple):
    """A client, and what its connection is looked up with."""

    client: Any
    base_url: Any
    http_client: Any
    transport: Any
    """None where that is not fastlane's."""
    request: Any
    """Leads to its upstream, and is never sent."""

    @classmethod
    def of(cls, client: Any) -> _Known:
        http_client = http_client_of(client)
        transport = transport_of(http_client)
        if not callable(getattr(transport, "outlook", None)):
            return cls(client, client.base_url, http_client, None, None)
        request = http_client.build_request("GET", client.base_url)
        return cls(client, client.base_url, http_client, transport, request)

    def forecast(self) -> ConnectionForecast:
        """Return what a request that was sent now would find."""
        return UNKNOWN if self.transport is None else self.transport.outlook(self.request)


class UpstreamClients:
    """The clients of one pipeline for other upstreams; made when they are first needed. Thread-safe.

    Each has the pipeline, the plays and the log of calls of the caller's client, and the shared connections. It has
    none of its credentials, organisation, project, headers, query and HTTP client, and nothing that openai's client
    takes from its environment. It is of fastlane's own class: what a subclass overrides is about its own provider.
    """

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._made: dict[_Key, _Known] = {}
        # Not the callers' clients themselves, which are not to be kept alive.
        self._own: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"UpstreamClients({len(self._made)})"

    def of(self, client: Any, model: CatalogModel) -> Any | None:
        """Return the client that a model is called with: the caller's own where the catalog names no base URL.

        None where its key cannot be had; `missing_key` says why. The key is that of the environment at this moment. A
        caller's client that is closed is returned itself, to fail as it does by itself.
        """
        if model.base_url is None or http_client_of(client).is_closed:
            return client
        key = key_of(model)
        if key is None:
            return None
        which = (model.base_url, model.api_key_env, client._asynchronous, validates_strictly(client))
        known = self._made.get(which)
        if known is None or known.http_client.is_closed:
            with self._lock:
                known = self._made.get(which)
                if known is None or known.http_client.is_closed:
                    known = self._made[which] = _Known.of(client._upstream_client(model.base_url, key))
        if known.client.api_key != key:
            known.client.api_key = key
        return known.client

    def forecast(self, client: Any, model: CatalogModel) -> ConnectionForecast:
        """Return what is known of the connection to a model's upstream, without opening one."""
        if model.base_url is not None:
            which = (model.base_url, model.api_key_env, client._asynchronous, validates_strictly(client))
            known = self._made.get(which)
            return UNKNOWN if known is None else known.forecast()
        known = self._own.get(client)
        if known is None or known.base_url is not client.base_url or known.http_client is not http_client_of(client):
            # Without the client itself, which it would keep alive.
            known = self._own[client] = _Known.of(client)._replace(client=None)
        return known.forecast()

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
            return [self._made.pop(which).client for which in list(self._made) if which[2] is asynchronous]


def upstream_clients_of(pipeline: Any) -> UpstreamClients:
    """Return those of a pipeline, the same to all of its threads."""
    with _making:
        if pipeline.other_clients is None:
            pipeline.other_clients = UpstreamClients()
        made: UpstreamClients = pipeline.other_clients
    return made
