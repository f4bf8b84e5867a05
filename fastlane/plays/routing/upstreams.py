"""Clients for other upstreams than the application's own, which carry nothing of its own client there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
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
"""Headers of a call that go to every provider unless the application says otherwise: they tie its spans together
(https://www.w3.org/TR/trace-context/). `baggage` is not among them, since applications put what they like into it."""

# openai's own client says with these how it is to read the answer. None of them says whose the call is.
_OWN_PREFIX = "x-stainless-"
_OWN = frozenset({"accept", OVERRIDE_CAST_TO_HEADER.lower()})

_CREDENTIALS = frozenset({
    "api-key", "authorization", "cookie", "openai-organization", "openai-project", "proxy-authorization",
    "x-api-key", "x-goog-api-key",
})  # fmt: skip


def checked_forward(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of headers that may go to other providers, as they are compared.

    Raises ConfigurationError for what is no header's name, and for one that says whose the call is.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigurationError(
            f'forward_headers takes a list of names such as ["traceparent"], got {type(names).__name__}'
        )
    checked = []
    for name in names:
        if not isinstance(name, str) or not name or not name.isascii() or any(one in " :\r\n\t" for one in name):
            # Somebody may have written the header's value as well: it is not quoted.
            raise ConfigurationError('forward_headers takes names of headers such as "traceparent", without values')
        if name.lower() in _CREDENTIALS:
            raise ConfigurationError(
                f"forward_headers takes no header that holds a credential, got {name!r}: name the variable of each "
                "provider's own key in the catalog (api_key_env)"
            )
        checked.append(name.lower())
    return tuple(checked)


def forwarded(headers: Any, forward: Sequence[str] = FORWARDED) -> dict[str, Any]:
    """Return those of a call's own headers that another provider may see."""
    if not isinstance(headers, Mapping):
        return {}
    allowed = _allowed(tuple(forward))
    return {
        name: value
        for name, value in headers.items()
        if (lower := name.lower()) in allowed or lower.startswith(_OWN_PREFIX)
    }


def options_for(
    options: Any, client: Any, sibling_model: CatalogModel, *, own: bool, forward: Sequence[str] = FORWARDED
) -> Any:
    """Return the options of a call as its upstream is to be given them; never the caller's own, changed in place.

    `own`: the upstream is the application's own client's, for which they were written: they stay as they are. For any
    other, no header, query or additional field of the caller's goes along but what `forward` names and what openai's
    client says of itself. The time-out and the retries of the caller's `client` are written into them, because the
    other client has its own. The body is that of `json_data`, into which `extra_body` has been merged already.
    """
    del sibling_model
    if own:
        return options
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


@lru_cache(maxsize=64)
def _allowed(forward: tuple[str, ...]) -> frozenset[str]:
    return _OWN | (frozenset(name.lower() for name in forward) - _CREDENTIALS)


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


_making = new_lock()

_Key = tuple[str, str | None, bool, bool]
"""A base URL, the variable of its key, whether the client is asynchronous, and whether it validates strictly."""


class _Sibling(NamedTuple):
    client: Any
    transport: Any
    """What can say what is known of its connection; None where that is not ours."""
    request: Any
    """What leads to its upstream, and is never sent."""


class Siblings:
    """The clients of one pipeline for other upstreams; made when they are first needed, and used by any thread.

    Each has the application's pipeline, plays and log of calls, and the shared connections. It has none of the
    application's credentials, organisation, project, headers, query and HTTP client, and nothing that openai's client
    takes from its environment. It is of fastlane's own class whatever the application's is: what a subclass overrides
    is about the application's own provider.
    """

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._made: dict[_Key, _Sibling] = {}
        # Not the applications' clients themselves, which nothing but the application may keep alive.
        self._own: WeakKeyDictionary[Any, tuple[Any, Any, Any, Any]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Siblings({len(self._made)})"

    def of(self, client: Any, model: CatalogModel) -> Any | None:
        """Return the client that a model is called with: the application's own where the catalog names no base URL.

        None where the key that it needs cannot be had; `missing_key` says why. The key is that of the environment at
        this moment. A client that was closed calls nobody: it is returned itself, to fail as it does by itself.
        """
        if model.base_url is None or http_client_of(client).is_closed:
            return client
        key = key_of(model)
        if key is None:
            return None
        which = (model.base_url, model.api_key_env, client._asynchronous, validates_strictly(client))
        sibling = self._made.get(which)
        if sibling is None or http_client_of(sibling.client).is_closed:
            with self._lock:
                sibling = self._made.get(which)
                if sibling is None or http_client_of(sibling.client).is_closed:
                    made = client._upstream_client(model.base_url, key)
                    sibling = self._made[which] = _Sibling(made, *_way_of(made))
        if sibling.client.api_key != key:
            sibling.client.api_key = key
        return sibling.client

    def missing_key(self, model: CatalogModel) -> str | None:
        """Return why a model cannot be called now, such as "MY_KEY is not set"; None where it can."""
        return missing_key(model)

    def outlook(self, model: CatalogModel, *, asynchronous: bool, client: Any = None) -> ConnectionForecast:
        """Return what is known of the connection to a model's upstream, without opening one.

        `client` is the application's own, for the models that are called with it.
        """
        if model.base_url is None:
            return UNKNOWN if client is None else self._own_outlook(client)
        for strict in (False, True):
            sibling = self._made.get((model.base_url, model.api_key_env, asynchronous, strict))
            if sibling is not None:
                return _outlook(sibling.transport, sibling.request)
        for strict in (False, True):
            sibling = self._made.get((model.base_url, model.api_key_env, not asynchronous, strict))
            if sibling is not None:
                # The other form's connections are its own, but as far away.
                return ConnectionForecast(
                    round_trip_time_ns=_outlook(sibling.transport, sibling.request).round_trip_time_ns
                )
        return UNKNOWN

    def _own_outlook(self, client: Any) -> ConnectionForecast:
        known = self._own.get(client)
        if known is None or known[0] is not client.base_url or known[1] is not http_client_of(client):
            transport, request = _way_of(client)
            known = self._own[client] = (client.base_url, http_client_of(client), transport, request)
        return _outlook(known[2], known[3])

    def close(self) -> None:
        """Close the synchronous ones; a later call makes new ones."""
        for sibling in self._taken(asynchronous=False):
            sibling.client.close()

    async def aclose(self) -> None:
        """Close the asynchronous ones, as far as they are of this event loop; a later call makes new ones."""
        for sibling in self._taken(asynchronous=True):
            await sibling.client.close()

    def _taken(self, *, asynchronous: bool) -> list[_Sibling]:
        with self._lock:
            return [self._made.pop(which) for which in list(self._made) if which[2] is asynchronous]


def siblings_of(pipeline: Any) -> Siblings:
    """Return those of a pipeline: the same to all of its threads, whose first calls may come at once."""
    with _making:
        if pipeline.other_clients is None:
            pipeline.other_clients = Siblings()
        made: Siblings = pipeline.other_clients
    return made


def _way_of(client: Any) -> tuple[Any, Any]:
    """What can say what is known of a client's connection, and what to ask it with; None where that is not ours."""
    http_client = http_client_of(client)
    transport = transport_of(http_client)
    if not callable(getattr(transport, "outlook", None)):
        return None, None
    return transport, http_client.build_request("GET", client.base_url)


def _outlook(transport: Any, request: Any) -> ConnectionForecast:
    if transport is None:
        return UNKNOWN
    outlook: ConnectionForecast = transport.outlook(request)
    return outlook
