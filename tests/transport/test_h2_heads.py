"""Whatever heads follow each other, and whatever the peer does to the table, what was packed is read unchanged."""

from __future__ import annotations

from collections import Counter

from hpack import Decoder
from hpack.hpack import Encoder
from hypothesis import given, settings, strategies as st

from fastlane.transport.protocols.h2 import Heads

Field = tuple[bytes, bytes]
DEFAULT_TABLE = 4_096

names = st.sampled_from([
    b"accept", b"authorization", b"content-length", b"content-type", b"idempotency-key", b"traceparent", b"x-a", b"x-b",
    b"x-stainless-retry-count", b"cookie",
])  # fmt: skip
values = st.sampled_from([b"", b"1", b"2", b"application/json", b"Bearer sk-1", b"Bearer sk-2"]) | st.binary(
    max_size=300
)
fields = st.lists(st.tuples(names, values), max_size=8)
heads = st.tuples(st.sampled_from([b"/v1/a", b"/v1/b"]) | st.binary(min_size=1, max_size=40), fields)
sizes = st.sampled_from([0, 1, 64, 200, DEFAULT_TABLE, 65_536]) | st.integers(0, 5_000)


def of(path: bytes, own: list[Field]) -> list[Field]:
    return [(b":method", b"POST"), (b":authority", b"llm.test"), (b":scheme", b"https"), (b":path", path), *own]


class Peer:
    """A server's decoder, and its table size settings."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.heads = Heads(self.encoder)
        self.decoder = Decoder(max_header_list_size=1 << 30)

    def resize(self, size: int) -> None:
        self.decoder.max_allowed_table_size = size
        self.encoder.header_table_size = size

    def read(self, sent: list[Field]) -> list[Field]:
        return [(bytes(name), bytes(value)) for name, value in self.decoder.decode(self.heads.pack(sent), raw=True)]


@settings(max_examples=150)
@given(steps=st.lists(heads | sizes, max_size=25), again=st.integers(1, 3))
def test_independent_decoder_reads_what_was_packed(steps: list[tuple[bytes, list[Field]] | int], again: int) -> None:
    peer = Peer()
    for step in steps:
        if isinstance(step, int):
            peer.resize(step)
            continue
        sent = of(*step)
        for _ in range(again):
            read = peer.read(sent)

            assert Counter(read) == Counter(sent)
            assert [name for name, _ in read[:4]] == [name for name, _ in sent[:4]]
            for name in {name for name, _ in sent}:  # those of one name keep their order
                assert [value for own, value in read if own == name] == [value for own, value in sent if own == name]


def test_nothing_grows_with_ever_new_fields() -> None:
    peer = Peer()
    for number in range(2_000):
        sent = of(b"/v1/%d" % number, [(b"x-%d" % number, b"1"), (b"x-same", b"%d" % number)])
        assert Counter(peer.read(sent)) == Counter(sent)

    assert len(peer.heads._packed) <= 32
    assert len(peer.heads._varying) <= 64
    assert len(peer.heads._last) <= 6


def test_repeated_headers_are_encoded_compactly() -> None:
    peer = Peer()
    own = [(b"authorization", b"Bearer sk-1"), (b"x-stainless-lang", b"python"), (b"accept", b"application/json")]
    for number in range(4):
        sent = of(b"/v1/a", [*own, (b"content-length", b"%d" % number)])
        packed = peer.heads.pack(sent)
        peer.decoder.decode(packed)

    assert len(packed) < 20
