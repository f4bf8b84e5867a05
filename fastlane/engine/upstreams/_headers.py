"""What of a call's own options may go to another provider than the one that they were written for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from openai import NotGiven

from fastlane.compat.call_options import changed_options
from fastlane.compat.types import OVERRIDE_CAST_TO_HEADER
from fastlane.errors import ConfigurationError

if TYPE_CHECKING:
    from fastlane.plays.routing.catalog._models import CatalogModel

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
