"""The client that the command's worker calls through: whose key it shows to whom."""

from __future__ import annotations

import os

from ..client.clients import OpenAI
from ..errors import ConfigurationError
from ..providers import facts_of

_KEY = "OPENAI_API_KEY"
_BASE_URL = "OPENAI_BASE_URL"
# A server on this machine mostly asks for none; the client wants one all the same.
_NO_KEY = "none"


def client_of(base_url: str | None, api_key_env: str | None) -> OpenAI:
    """Return a client for a provider. Raises ConfigurationError, which names the variable that is missing.

    OpenAI's key goes to OpenAI, to $OPENAI_BASE_URL and to this machine; no other provider is shown it unasked.
    """
    from ..providers.base_urls import target_of

    own = os.environ.get(_BASE_URL) or None
    url = base_url or own
    is_local = url is not None and target_of(url).is_local
    source = api_key_env
    if source is None and (
        url is None or is_local or url.rstrip("/") == (own or "").rstrip("/") or facts_of(url).slug == "openai"
    ):
        source = _KEY
    if source is None:
        raise ConfigurationError("name the environment variable that holds this provider's key: --api-key-env NAME")
    key = os.environ.get(source, "").strip()
    if not key and not (is_local and api_key_env is None):
        raise ConfigurationError(f"expected the provider's key in the environment variable {source}, which is not set")
    return OpenAI(base_url=url, api_key=key or _NO_KEY)
