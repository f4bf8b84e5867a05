"""Whom a connection trusts and which protocols it offers: one TLS context for each setting."""

from __future__ import annotations

import importlib
import os
import ssl
import threading

from ..pool.settings import Http2

_PROTOCOLS: dict[Http2, list[str]] = {
    "prefer": ["h2", "http/1.1"],
    "require": ["h2"],
    "never": ["http/1.1"],
}

_Key = tuple[bool, str, str | None, str | None, Http2]

_contexts: dict[_Key, ssl.SSLContext] = {}
# Reading the system's certificates takes about 17 ms: whoever comes meanwhile waits for them. Reading them makes
# objects, and with them garbage collections, in which a finaliser may come back here.
_lock = threading.RLock()


def ssl_context(
    verify: bool | ssl.SSLContext,
    certificates: tuple[str | None, str | None],
    http2: Http2,
    *,
    library: str = "httpx2",
) -> ssl.SSLContext:
    """The TLS context for a setting, the same one each time.

    `verify`: True for the trust of the stock client; False, said explicitly, for none at all; or a context of the
    application's, which is used as it is, apart from the protocols that it offers (ALPN). Those are written into it, as
    httpcore does: where an application gives one context to clients of different `http2`, each connection offers what
    was asked for last.

    `certificates`: SSL_CERT_FILE and SSL_CERT_DIR, as they were when the client was made.

    `library`: the HTTP library whose trust is the stock client's: httpx2 takes the system's, legacy httpx certifi's.
    """
    if isinstance(verify, ssl.SSLContext):
        verify.set_alpn_protocols(_PROTOCOLS[http2])
        return verify
    if verify is not True and verify is not False:
        # None and 0 come from mistakes, which must not switch verification off.
        raise TypeError(f"verify is True, False or an ssl.SSLContext, not {verify!r}")
    file, directory = (name or None for name in certificates) if verify else (None, None)
    key = verify, library, file, directory, http2
    context = _contexts.get(key)
    if context is None:
        with _lock:
            context = _contexts.get(key)
            if context is None:
                context = _made(library, file, directory, verify=verify)
                context.set_alpn_protocols(_PROTOCOLS[http2])
                _contexts[key] = context
    return context


def _made(library: str, file: str | None, directory: str | None, *, verify: bool) -> ssl.SSLContext:
    # The same choice as the library's own `create_ssl_context`, except that it does not look at the environment again:
    # what counts is what the client was made with.
    if file:
        return ssl.create_default_context(cafile=file)
    if directory:
        return ssl.create_default_context(capath=directory)
    made: ssl.SSLContext = importlib.import_module(library).create_ssl_context(verify=verify, trust_env=False)
    return made


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread may have held it, and does not exist in the child
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
