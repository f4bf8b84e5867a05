"""TLS from the client's side, without its I/O: ciphertext in, plaintext out, and back."""

from __future__ import annotations

import contextlib
import ssl

from ..protocols.errors import TransportError

# More than a record can hold (RFC 8446, 5.1), of which a read gives one at most.
_READ_BYTES = 16_384


class Tls:
    """One TLS connection, from the client's side. Not thread-safe.

    After each call, `data_to_send()` has what must go to the peer, also after one that raised: the alert that says why.
    """

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        """What `data_to_send()` takes from: to be asked whether anything is pending."""
        if ":" in server_hostname:
            # An IPv6 address is certified without the zone, which is known to this machine only.
            server_hostname = server_hostname.partition("%")[0]
        try:
            self._tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname=server_hostname)
        except ValueError as error:  # no name that TLS can ask for
            raise TransportError("ConnectError", str(error)) from error
        self._is_open = False
        self._unwritten = bytearray()
        self._error: TransportError | None = None
        self.ended = False
        """The peer has said, under the protection of TLS, that it sends nothing more (close_notify)."""

    def handshake(self) -> bool:
        """Go on with the handshake as far as the bytes go that have come; True once it is done.

        Raises TransportError where the peer is not trusted, or talks no TLS that we do.
        """
        if self._is_open:
            return True
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TransportError("ConnectError", str(error)) from error
        self._is_open = True
        if self._unwritten:
            self._write_rest()
        return True

    def feed(self, data: bytes | memoryview) -> bytes:
        """Take bytes from the peer and give what they say, which may be nothing.

        Goes on with the handshake too. The flight that ends it may bring data already.
        """
        if self._error is not None:
            raise self._error.again()
        if self.ended:
            return b""
        incoming = self._incoming
        incoming.write(data)
        if not self._is_open and not self.handshake():
            return b""
        tls = self._tls
        try:
            first = tls.read(_READ_BYTES)
        except ssl.SSLWantReadError:
            first = None
        except ssl.SSLError as error:
            self._read_failed(error)
            if self._error is not None:
                raise self._error from error
            return b""
        if self._unwritten:
            self._write_rest()
        if first is None:
            return b""
        if not first:
            self.ended = True
            return b""
        # OpenSSL takes a whole record out of what has come before it gives any of it, and no byte more.
        if not incoming.pending and not tls.pending():
            return first
        return self._read_rest(first)

    def _read_rest(self, first: bytes) -> bytes:
        pieces = [first]
        tls = self._tls
        incoming = self._incoming
        try:
            while incoming.pending or tls.pending():
                piece = tls.read(_READ_BYTES)
                if not piece:
                    self.ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # What came before it was sent by the peer and counts; the next call says what is wrong.
            self._read_failed(error)
        return b"".join(pieces)

    def _read_failed(self, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLZeroReturnError):  # close_notify, after ours
            self.ended = True
        else:
            self._error = TransportError("ReadError", str(error))

    def wrap(self, plaintext: bytes) -> None:
        """Encrypt bytes for the peer."""
        if not plaintext:
            return
        if self._unwritten or not self._is_open:
            self._unwritten += plaintext
            return
        try:
            written = self._tls.write(plaintext)
        except ssl.SSLWantReadError:
            written = 0
        except ssl.SSLError as error:
            raise TransportError("WriteError", str(error)) from error
        if written < len(plaintext):
            self._unwritten += memoryview(plaintext)[written:]
            if written:
                self._write_rest()

    def _write_rest(self) -> None:
        """Write what had to wait: for the handshake, or for a renegotiation (TLS 1.2)."""
        try:
            while self._unwritten:
                del self._unwritten[: self._tls.write(self._unwritten)]
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise TransportError("WriteError", str(error)) from error

    def data_to_send(self) -> bytes:
        """Take what is to be sent to the peer now; empty where there is nothing."""
        return self.outgoing.read()

    def close(self) -> None:
        """Say that we send nothing more (close_notify). What the peer still sends can be fed."""
        # The peer's own goodbye is not waited for; before the end of the handshake there is none to say.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()

    @property
    def alpn(self) -> str | None:
        """The protocol agreed on, once the handshake is done; None where the server named none."""
        return self._tls.selected_alpn_protocol()

    @property
    def version(self) -> str | None:
        """Such as "TLSv1.3", once the handshake is done."""
        return self._tls.version()

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """For those who want to look at the peer's certificate."""
        return self._tls
