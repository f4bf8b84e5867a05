"""Heads packed and unpacked for HTTP/2 (HPACK, RFC 7541), with little work for what is the same in every call."""

from __future__ import annotations

from functools import lru_cache

from hpack.exceptions import HPACKDecodingError, InvalidTableIndexError, OversizedHeaderListError
from hpack.hpack import Decoder, Encoder, encode_integer
from hpack.table import HeaderTable

from .frames import Fields

# Different in every call by their nature: indexing them would push out of the table what stays the same.
_VARYING = frozenset({b"content-length", b"idempotency-key", b"traceparent", b"tracestate", b"x-request-id"})

_STATIC_FIELDS = len(HeaderTable.STATIC_TABLE)

_MOST_KEPT = 32
_MOST_LEARNED = 64


class Heads:
    """Packs the heads of one connection."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._packed: dict[tuple[tuple[bytes, bytes], ...], bytes] = {}
        """How steady fields are packed while the table stays as it is."""
        self._varying = _VARYING
        self._last: dict[bytes, bytes] = {}

    def pack(self, fields: Fields) -> bytes:
        """The header block of a request."""
        table = self._encoder.header_table
        changes = self._encoder.table_size_changes
        if changes:
            # The lowest and the last (RFC 7541, 4.2): the peer need not take one that is above its last word. Where it
            # has said the same size twice, the library forgets that there is anything to announce.
            changes[:] = sorted({min(changes), changes[-1]})
            table.resized = True
        varying = self._varying
        steady = tuple([field for field in fields if field[0] not in varying])
        packed = None if table.resized else self._packed.get(steady)
        if packed is None:
            self._learn(steady)
            if varying is not self._varying:
                varying = self._varying
                steady = tuple([field for field in fields if field[0] not in varying])
            packed = self._pack(steady)
        return packed + b"".join([_literal(*field) for field in fields if field[0] in varying])

    def _pack(self, steady: tuple[tuple[bytes, bytes], ...]) -> bytes:
        entries = self._encoder.header_table.dynamic_entries
        resized = self._encoder.header_table.resized
        before, first = len(entries), entries[0] if entries else None
        packed = self._encoder.encode(steady)
        if resized or len(entries) != before or (entries and entries[0] is not first):
            self._packed.clear()  # every index means another field now
        elif len(self._packed) < _MOST_KEPT:
            self._packed[steady] = packed
        return packed

    def _learn(self, steady: tuple[tuple[bytes, bytes], ...]) -> None:
        """Take note of fields that have another value than last time: they are no longer indexed."""
        last = self._last
        changed = {name for name, value in steady if last.get(name, value) != value and not name.startswith(b":")}
        if changed and len(self._varying) + len(changed) < _MOST_LEARNED:
            self._varying = self._varying | changed
        self._last = dict(steady)


@lru_cache(maxsize=256)
def _name(name: bytes) -> bytes:
    # A literal without indexing, and with its name in full (RFC 7541, 6.2.2).
    return b"\0" + bytes(encode_integer(len(name), 7)) + name


def _literal(name: bytes, value: bytes) -> bytes:
    length = len(value)
    if name == b"content-length" and length < 127:  # number 28 of the static table, in four bits
        return b"\x0f\x0d" + bytes((length,)) + value
    return _name(name) + (bytes((length,)) if length < 127 else bytes(encode_integer(length, 7))) + value


class AnswerHeads(Decoder):
    """Unpacks the heads of answers: the library's decoder, with less around the fields that are known already."""

    def unpack(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """The fields of a header block. Raises what the library's decoder raises."""
        table = self.header_table
        entries = table.dynamic_entries
        fields: list[tuple[bytes, bytes]] = []
        position, size, list_bytes = 0, len(block), 0
        most = self.max_header_list_size
        while position < size:
            byte = block[position]
            index = byte & 0x7F
            if byte > 0x80 and index < 0x7F:  # a field of either table, its number in one byte
                number = index - _STATIC_FIELDS - 1
                if number < 0:
                    field = HeaderTable.STATIC_TABLE[index - 1]
                elif number < len(entries):
                    field = entries[number]
                else:
                    raise InvalidTableIndexError("a number that no field has")
                position += 1
            elif byte & 0xE0 == 0x20:  # the size of the table
                if fields:
                    raise HPACKDecodingError("the size of the table is said too late")
                position += self._update_encoding_context(block[position:])
                continue
            elif byte >= 0x80:
                header, taken = self._decode_indexed(block[position:])
                field = (header[0], header[1])
                position += taken
            else:
                header, taken = self._decode_literal(block[position:], bool(byte & 0x40))
                field = (header[0], header[1])
                position += taken
            fields.append(field)
            list_bytes += len(field[0]) + len(field[1]) + 32
            if list_bytes > most:
                raise OversizedHeaderListError("a head larger than allowed")
        self._assert_valid_table_size()
        return fields
