"""Our connections trust whom the stock client's trust, and offer what the application allows."""

from __future__ import annotations

import importlib
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from fastlane.transport.drivers import connect as _trust
from fastlane.transport.drivers.connect import ssl_context
from fastlane.transport.pool.settings import Http2

NONE = None, None


@pytest.fixture(autouse=True)
def no_contexts_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    _trust._made.cache_clear()
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def trusts(context: ssl.SSLContext) -> tuple[Any, ...]:
    return (
        type(context),
        sorted(str(certificate) for certificate in context.get_ca_certs()),
        context.cert_store_stats(),
        context.verify_mode,
        context.verify_flags,
        context.check_hostname,
        context.minimum_version,
        context.maximum_version,
        context.options,
        [cipher["name"] for cipher in context.get_ciphers()],
    )


def agreed(context: ssl.SSLContext, authority: trustme.CA, server_offers: list[str] | None) -> str | None:
    """What a server that offers this agrees on with a client of the context."""
    at_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("name.test").configure_cert(at_server)
    if server_offers is not None:
        at_server.set_alpn_protocols(server_offers)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="name.test")
    server = at_server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.selected_alpn_protocol()


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("http2", ["prefer", "require", "never"])
def test_trusted_certificates_match_the_stock_client(library: str, verify: bool, http2: Http2) -> None:
    stock = importlib.import_module(library).create_ssl_context(verify=verify)
    made = ssl_context(verify, NONE, http2, library=library)
    assert trusts(made) == trusts(stock)
    assert (made.verify_mode is ssl.CERT_REQUIRED, made.check_hostname) == (verify, verify)


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
def test_environment_certificates_match_the_stock_client(
    library: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    stock_for = importlib.import_module(library).create_ssl_context
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    by_directory = trusts(stock_for())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    by_file = trusts(stock_for())
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.delenv("SSL_CERT_DIR")
    # The environment has changed since the client was made, which does not change the client.
    of_file = ssl_context(True, (str(file), str(tmp_path)), "prefer", library=library)
    assert trusts(of_file) == by_file
    assert trusts(ssl_context(True, (None, str(tmp_path)), "prefer", library=library)) == by_directory
    assert trusts(ssl_context(True, ("", str(tmp_path)), "prefer", library=library)) == by_directory
    assert agreed(of_file, authority, ["h2"]) == "h2"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert trusts(ssl_context(True, NONE, "prefer", library=library)) != by_file


def test_missing_certificate_file_raises_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            ssl_context(True, (str(tmp_path / "none.pem"), None), "prefer")


@pytest.mark.parametrize("verify", [None, 0, 1, "", "/ca.pem"])
def test_nothing_but_false_switches_verification_off(verify: Any) -> None:
    with pytest.raises(TypeError, match="verify"):
        ssl_context(verify, NONE, "prefer")


@pytest.mark.parametrize(
    ("http2", "server_offers", "expected"),
    [
        ("prefer", ["h2", "http/1.1"], "h2"),
        ("prefer", ["http/1.1"], "http/1.1"),
        ("prefer", None, None),
        ("require", ["h2", "http/1.1"], "h2"),
        ("require", ["http/1.1"], None),
        ("never", ["h2", "http/1.1"], "http/1.1"),
        ("never", ["h2"], None),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_alpn_follows_http2_setting_and_server(
    http2: Http2, server_offers: list[str] | None, expected: str | None, own: bool, authority: trustme.CA
) -> None:
    context = ssl_context(ssl.create_default_context() if own else True, NONE, http2)
    authority.configure_trust(context)
    assert agreed(context, authority, server_offers) == expected
