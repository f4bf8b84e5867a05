"""TLS without I/O decrypts any split of the bytes, and names the reason of distrust."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator

import pytest
import trustme
from hypothesis import given, strategies as st

from fastlane.transport.drivers.connection import Tls
from fastlane.transport.protocols.exchange import TransportError

HANG_S = 40.0
VERSIONS = {"TLSv1.3": ssl.TLSVersion.TLSv1_3, "TLSv1.2": ssl.TLSVersion.TLSv1_2}
AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("name.test", "127.0.0.1", "::1", "fe80::1")


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def server_context(version: str = "TLSv1.3") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CERTIFICATE.configure_cert(context)
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


CLIENT = client_context()
SERVERS = {version: server_context(version) for version in VERSIONS}


class Server:
    """The other end, in memory."""

    def __init__(self, version: str = "TLSv1.3", context: ssl.SSLContext | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or SERVERS[version]).wrap_bio(self._incoming, self._outgoing, server_side=True)

    def take(self) -> bytes:
        return self._outgoing.read()

    def encrypt(self, plaintext: bytes) -> bytes:
        """The records of a message. More than a record holds goes into several."""
        self.tls.write(plaintext)
        return self.take()

    def decrypt(self, ciphertext: bytes) -> bytes:
        self._incoming.write(ciphertext)
        plaintext_read = b""
        while True:
            try:
                piece = self.tls.read(65_536)
            except ssl.SSLWantReadError:
                return plaintext_read
            if not piece:
                return plaintext_read
            plaintext_read += piece

    def greet(self, ciphertext: bytes) -> None:
        self._incoming.write(ciphertext)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass

    def close_notify(self) -> bytes:
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass
        return self.take()


def shake(tls: Tls, server: Server) -> bytes:
    """Both ends agree; gives what the server sends after that (session tickets)."""
    assert not tls.handshake()
    for _ in range(4):
        server.greet(tls.data_to_send())
        flight = server.take()
        if tls.handshake():
            return flight
        assert tls.feed(flight) == b""
    raise AssertionError("no end")


def connected(version: str = "TLSv1.3") -> tuple[Tls, Server]:
    tls, server = Tls(CLIENT, "name.test"), Server(version)
    assert tls.feed(shake(tls, server)) == b""
    return tls, server


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data, cut at these positions."""
    positions = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    for start, end in itertools.pairwise(positions):
        yield data[start:end]


# --- data arrives


@given(
    version=st.sampled_from(list(VERSIONS)),
    sizes=st.lists(st.sampled_from([1, 2, 340, 16_383, 16_384, 16_385, 50_000]), max_size=6),
    cuts=st.lists(st.integers(0, 200_000), max_size=12),
    greeting_cuts=st.lists(st.integers(0, 10_000), max_size=6),
    ends=st.booleans(),
)
def test_tls_decrypts_any_split_of_the_bytes(
    version: str, sizes: list[int], cuts: list[int], greeting_cuts: list[int], ends: bool
) -> None:
    tls, server = Tls(CLIENT, "name.test"), Server(version)
    tls.handshake()
    rest = b""
    while not tls.handshake():
        server.greet(tls.data_to_send())
        flight = rest + server.take()
        rest = b""
        for piece in pieces(flight, greeting_cuts):
            assert tls.feed(piece) == b""
    server.greet(tls.data_to_send())
    plaintexts = [bytes([number]) * size for number, size in enumerate(sizes)]
    ciphertext = server.take() + b"".join(map(server.encrypt, plaintexts)) + (server.close_notify() if ends else b"")
    assert b"".join(map(tls.feed, pieces(ciphertext, cuts))) == b"".join(plaintexts)
    assert tls.ended == ends


# --- the end


def test_tls_close_notify_of_the_peer_ends_reading(version: str) -> None:
    tls, server = connected(version)
    assert tls.feed(server.encrypt(b"last words") + server.close_notify()) == b"last words"
    assert tls.ended
    assert tls.feed(b"anything") == b""
    tls.close()
    assert tls.data_to_send()


def test_tls_close_sends_close_notify(version: str) -> None:
    tls, server = connected(version)
    tls.close()
    assert server.decrypt(tls.data_to_send()) == b""
    assert server.tls.unwrap() is None  # type: ignore[func-returns-value] # both have closed
    with pytest.raises(TransportError) as caught:
        tls.wrap(b"more")
    assert caught.value.name == "WriteError"
    tls.close()


def test_data_after_our_close_notify_is_received() -> None:
    tls, server = connected()
    half = server.encrypt(b"half-way")
    assert tls.feed(half[:10]) == b""
    tls.close()
    assert tls.feed(half[10:]) == b"half-way"
    assert tls.feed(server.encrypt(b"and on")) == b"and on"
    assert tls.feed(server.close_notify()) == b""
    assert tls.ended


# --- what is wrong


def test_tls_altered_record_is_a_read_error(version: str) -> None:
    tls, server = connected(version)
    record = bytearray(server.encrypt(b"answer"))
    record[-1] ^= 1
    for _ in range(2):
        with pytest.raises(TransportError) as caught:
            tls.feed(bytes(record))
        assert caught.value.name == "ReadError"
    assert tls.data_to_send()  # the alert


def test_tls_data_before_an_altered_record_is_returned(version: str) -> None:
    tls, server = connected(version)
    good, record = server.encrypt(b"good"), bytearray(server.encrypt(b"bad"))
    record[-1] ^= 1
    assert tls.feed(good + bytes(record)) == b"good"
    assert not tls.ended
    with pytest.raises(TransportError) as caught:
        tls.feed(b"")
    assert caught.value.name == "ReadError"
