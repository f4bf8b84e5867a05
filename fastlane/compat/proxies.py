"""The proxies of the environment, chosen by the HTTP library's own rules, and HTTP clients of openai's with a proxy."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Literal

from ..errors import ConfigurationError
from ..transport import ProxyRule, ProxyServer, proxy_server
from .clients import stock_http_client_class

ProxySetting = ProxyServer | Literal[False] | None
"""The proxy of a client: False for none whatever the environment says, None for that of the environment."""

_VARIABLES = {"http://": "HTTP_PROXY", "https://": "HTTPS_PROXY", "all://": "ALL_PROXY"}


def proxy_setting(given: Any) -> ProxySetting:
    """Return the proxy that an argument `proxy` names. Raises ConfigurationError, without any part of its URL."""
    if given is None or given is False:
        return given
    try:
        return proxy_server(given)
    except ValueError as error:
        problem = error
    raise ConfigurationError(f"proxy takes {problem} (False: no proxy; None: that of the environment)")


def environment_proxies(library: str) -> tuple[ProxyRule, ...]:
    """Return the rules of the environment or the system, in the order in which the HTTP library tries them.

    Raises ConfigurationError for a proxy's URL that cannot work.
    """
    # Reading them takes as long as making a client does, and nearly always there are none.
    if sys.platform not in ("darwin", "win32") and b"_proxy" not in b" ".join(os.environb).lower():
        return ()
    utils: Any = importlib.import_module(f"{library}._utils")
    urls: dict[str, str | None] = utils.get_environment_proxies()
    if not any(urls.values()):
        return ()
    patterns = sorted(utils.URLPattern(name) for name in urls)
    return tuple(ProxyRule(each, _proxy_of(each.pattern, urls[each.pattern], library)) for each in patterns)


def _proxy_of(pattern: str, url: str | None, library: str) -> ProxyServer | None:
    if url is None:
        return None
    try:
        return proxy_server(url, library)
    except ValueError as error:
        problem = error
    name = _VARIABLES[pattern]
    set_ones = (one for one in (name.lower(), name) if os.environ.get(one))
    raise ConfigurationError(f"{next(set_ones, 'the proxy setting of the system')} takes {problem}")


def stock_http_client(proxy: ProxySetting, timeout: Any, *, asynchronous: bool) -> Any:
    """Make the HTTP client that openai makes, with a proxy."""
    made = stock_http_client_class(asynchronous=asynchronous)
    if proxy is None:
        return made(timeout=timeout)
    if proxy is False:
        return made(timeout=timeout, mounts={"http://": None, "https://": None})
    library = next(base.__module__.partition(".")[0] for base in made.__mro__ if base.__module__.startswith("httpx"))
    auth = None if proxy.credentials is None else tuple(part.decode() for part in proxy.credentials)
    settings = importlib.import_module(library).Proxy(str(proxy), auth=auth, headers=proxy.headers)
    return made(timeout=timeout, proxy=settings)
