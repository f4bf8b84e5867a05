from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import trustme
from h2.settings import SettingCodes
from hypothesis import assume, example, given, settings, strategies as st

from fastlane._clock import now_ns
from fastlane.emulator._wire_flow import Flow
from fastlane.emulator.wire import Wire
from fastlane.plays.request_encoding.session import decide
from fastlane.transport.drivers.connection import Tls
from fastlane.transport.protocols.upload import Path, rounds, upload_s, wire_bytes
from tests.emulator.kernel_tcp import Connect, kernel, request
from tests.emulator.kernel_wire import missing
from tests.transport.h2_peer import Pair

# Pure functions: a busy machine is no failure, and no example is kept on disk.
law = settings(deadline=None, database=None)

SIZES = st.integers(0, 1_000_000)
WINDOWS = st.one_of(st.none(), st.integers(0, 200_000), st.sampled_from([65_535, 1 << 20]))
PATHS = st.builds(
    Path,
    round_trip_time_s=st.sampled_from([0.0, 0.001, 0.04, 0.1, 0.3]),
    congestion_window=st.one_of(st.integers(1, 40), st.sampled_from([10, 32, 500])),
    segment_bytes=st.sampled_from([536, 1_220, 1_448, 8_948]),
    receive_window_bytes=st.sampled_from([1_000, 16_384, 65_536, 131_072, 3 << 20]),
    stream_window_bytes=WINDOWS,
    connection_window_bytes=WINDOWS,
    uplink_bytes_per_s=st.sampled_from([None, 1e5, 2.5e6, 1e8]),
    http2=st.booleans(),
    tls=st.booleans(),
)
CPU = st.sampled_from([0.0, 0.0003, 0.003, 0.05, 1.0])


# Bytes


def encrypted(plaintext: bytes) -> int:
    """How many bytes TLS 1.3 makes of one write of the transport's."""
    authority = trustme.CA()
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("llm.test").configure_cert(theirs)
    authority.configure_trust(ours)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = theirs.wrap_bio(incoming, outgoing, server_side=True)
    tls = Tls(ours, "llm.test")
    while not tls.handshake():
        incoming.write(tls.data_to_send())
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()
        tls.feed(outgoing.read())
    tls.data_to_send()
    assert tls.version == "TLSv1.3"
    tls.wrap(plaintext)
    return len(tls.data_to_send())


@pytest.mark.parametrize("body", [1, 11_000, 16_383, 16_384, 16_385, 32_768, 65_536, 123_400])
def test_the_transport_writes_as_many_bytes(body: int) -> None:
    pair = Pair({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
    pair.server.increment_flow_control_window(1 << 20)
    pair.carry()
    exchange = pair.exchange()
    pair.client.begin(exchange, end=False)
    head = pair.client.data_to_send()
    pair.client.send(exchange, bytes(body), end=True)
    request = head + pair.client.data_to_send()

    assert len(request) == wire_bytes(body, Path(tls=False), head_bytes=len(head))
    assert encrypted(request) == wire_bytes(body, Path(), head_bytes=len(head))


@law
@given(SIZES, st.booleans(), st.booleans())
def test_what_surrounds_a_body_is_less_than_half_a_percent_and_a_head(body: int, http2: bool, tls: bool) -> None:
    around = wire_bytes(body, Path(http2=http2, tls=tls), head_bytes=300) - body

    assert 300 <= around <= 300 + 2 * (9 + 22) + body / 200


# Rounds


@pytest.mark.parametrize(
    ("body", "expected"),
    [(1, 1), (11_500, 1), (14_000, 1), (14_500, 2), (42_000, 2), (44_000, 3), (100_000, 3), (101_500, 4), (160_000, 4)],
)
def test_a_new_connection_takes_ten_segments_then_twice_as_many_until_the_receive_window(
    body: int, expected: int
) -> None:
    # 10, 20, 40 and 45 segments of 1,448 bytes.
    assert rounds(body, Path()) == expected


def test_a_warm_congestion_window_takes_it_all_at_once() -> None:
    assert rounds(123_400, Path(congestion_window=200, receive_window_bytes=1 << 20)) == 1


def test_a_receive_window_of_64_kib_holds_back_what_the_congestion_window_would_let_leave() -> None:
    assert rounds(123_400, Path(congestion_window=200)) == 2


@pytest.mark.parametrize(
    ("body", "expected"), [(65_535, 1), (65_536, 2), (123_400, 2), (131_070, 2), (250_000, 4), (1_000_000, 16)]
)
@pytest.mark.parametrize("window", ["stream_window_bytes", "connection_window_bytes"])
def test_a_body_larger_than_the_peers_window_waits_a_round_trip_for_each_window(
    window: str, body: int, expected: int
) -> None:
    path = Path(congestion_window=2_000, receive_window_bytes=3 << 20, **{window: 65_535})  # type: ignore[arg-type]

    assert rounds(body, path) == expected


def test_the_smaller_of_the_two_windows_counts() -> None:
    path = Path(congestion_window=2_000, receive_window_bytes=3 << 20, stream_window_bytes=1 << 20)

    assert rounds(123_400, replace(path, connection_window_bytes=40_000)) == 4
    assert rounds(123_400, replace(path, connection_window_bytes=40_000, stream_window_bytes=20_000)) == 7


def test_http1_has_no_such_windows() -> None:
    path = Path(congestion_window=2_000, receive_window_bytes=3 << 20, stream_window_bytes=65_535, http2=False)

    assert rounds(1_000_000, path) == 1


@pytest.mark.parametrize("window", [0, 1])
def test_a_window_that_is_used_up_is_not_waited_for_byte_by_byte(window: int) -> None:
    assert rounds(123_400, Path(connection_window_bytes=window)) == 8


@law
@given(SIZES, SIZES, PATHS)
def test_a_larger_body_never_takes_fewer_rounds_or_less_time(body: int, more: int, path: Path) -> None:
    assert rounds(body + more, path) >= rounds(body, path)
    assert upload_s(body + more, path) >= upload_s(body, path)


@law
@given(SIZES, PATHS, st.integers(0, 100), st.integers(0, 100_000), st.integers(0, 100_000))
def test_a_larger_window_never_takes_more_rounds(body: int, path: Path, segments: int, offered: int, more: int) -> None:
    larger = replace(
        path,
        congestion_window=path.congestion_window + segments,
        receive_window_bytes=path.receive_window_bytes + offered,
        stream_window_bytes=None if path.stream_window_bytes is None else path.stream_window_bytes + more,
    )

    assert rounds(body, larger) <= rounds(body, path)


@law
@given(SIZES, PATHS)
def test_what_the_windows_take_at_once_takes_one_round(body: int, path: Path) -> None:
    path = replace(path, stream_window_bytes=None, connection_window_bytes=None)
    window = min(path.congestion_window * path.segment_bytes, path.receive_window_bytes)

    assert (rounds(body, path) == 1) == (wire_bytes(body, path) <= max(window, path.segment_bytes))


def test_the_table_in_the_documentation_says_the_same() -> None:
    page = pathlib.Path(__file__).parent.parent / "docs/plays/request_encoding.md"
    rows = re.findall(
        r"^\| to (\d+) kB \| (\d) \| (\d) \| (\d) \| (?:nothing|(\d+) ms) \|$", page.read_text(), re.MULTILINE
    )

    assert len(rows) == 5
    smallest = 1
    for kilobytes, plain, quarter, saved, milliseconds in rows:
        for body in (smallest, int(kilobytes) * 1_000):
            assert (rounds(body, Path()), rounds(body // 4, Path())) == (int(plain), int(quarter))
        assert int(saved) == int(plain) - int(quarter) == int(milliseconds or 0) / 40
        smallest = int(kilobytes) * 1_000 + 1_000


# Time


@law
@given(SIZES, PATHS)
def test_without_a_limit_of_the_link_the_rounds_are_the_time(body: int, path: Path) -> None:
    path = replace(path, uplink_bytes_per_s=None)

    expected = path.round_trip_time_s * (rounds(body, path) - 0.5)
    assert upload_s(body, path) == pytest.approx(expected)


@law
@given(SIZES, PATHS)
def test_a_link_never_carries_more_than_it_can(body: int, path: Path) -> None:
    assume(path.uplink_bytes_per_s is not None)
    assert path.uplink_bytes_per_s is not None
    free = replace(path, uplink_bytes_per_s=None)

    least = wire_bytes(body, path) / path.uplink_bytes_per_s + path.round_trip_time_s / 2
    assert upload_s(body, path) >= max(least, upload_s(body, free)) - 1e-9


# Against TCP as the wire emulator has it, and against the kernel's


def arrives_s(body: int, path: Path, *, rate_bits_per_s: float | None = None) -> float:
    wire = Wire(
        round_trip_time_s=path.round_trip_time_s,
        initial_window_segments=path.congestion_window,
        segment_bytes=path.segment_bytes,
        rate_bits_per_s=rate_bits_per_s,
    )
    return Flow(wire, 0).send(0, wire_bytes(body, path))[-1].arrives_ns / 1e9


@law
@given(
    st.integers(1, 130_000),
    st.sampled_from([0.001, 0.01, 0.04, 0.067, 0.1]),
    st.sampled_from([1, 2, 4, 10, 16, 32, 64, 200]),
    st.sampled_from([536, 1_448]),
    st.booleans(),
    st.booleans(),
)
@example(64_772, 0.04, 64, 1_448, True, True)  # the last segment fits into the receive window, a whole one would not
def test_tcp_needs_as_many_rounds(
    body: int, round_trip_s: float, segments: int, segment_bytes: int, http2: bool, tls: bool
) -> None:
    path = Path(
        round_trip_time_s=round_trip_s,
        congestion_window=segments,
        segment_bytes=segment_bytes,
        http2=http2,
        tls=tls,
    )

    assert arrives_s(body, path) == pytest.approx(upload_s(body, path), abs=1e-6)


@pytest.mark.parametrize("rate", [2e6, 5e6, 20e6])
def test_a_narrow_link_takes_as_long(rate: float) -> None:
    path = Path(round_trip_time_s=0.04, uplink_bytes_per_s=rate / 8)

    for body in range(1, 130_001, 4_000):
        assert upload_s(body, path) == pytest.approx(arrives_s(body, path, rate_bits_per_s=rate), rel=0.25)


def windows_that_are_credited(body: int, window: int, path: Path) -> Iterator[float]:
    """When each window of a body arrives whose next one is written when this one's credit has come."""
    wire = Wire(
        round_trip_time_s=path.round_trip_time_s, initial_window_segments=path.congestion_window, slow_start=False
    )
    flow, now_ns = Flow(wire, 0), 0
    for start in range(0, body, window):
        arrives_ns = flow.send(now_ns, wire_bytes(min(window, body - start), path))[-1].arrives_ns
        yield arrives_ns / 1e9
        now_ns = arrives_ns + round(path.round_trip_time_s * 1e9 / 2)


@law
@given(st.integers(1, 1_000_000), st.sampled_from([16_384, 65_535, 100_000, 1 << 20]))
def test_windows_that_are_credited_as_they_come_need_as_many_rounds(body: int, window: int) -> None:
    path = Path(congestion_window=10_000, receive_window_bytes=3 << 20, stream_window_bytes=window)

    assert list(windows_that_are_credited(body, window, path))[-1] == pytest.approx(upload_s(body, path), rel=0.001)


# Of what leaves at once the last byte, and one byte more: 10, 30 and 70 segments.
EDGES = (1, 14_480, 14_481, 43_440, 43_441, 101_360, 101_361, 123_400)


@pytest.mark.slow
@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_the_kernels_own_tcp_needs_as_many_rounds() -> None:
    if reason := missing():
        pytest.skip(reason)
    path = Path(round_trip_time_s=0.1, http2=False, tls=False)

    def answered_s(connect: Connect, size: int) -> float:
        with connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            started_ns = now_ns()
            request(connection, max(4, size))
            return (now_ns() - started_ns) / 1e9

    with kernel(Wire(round_trip_time_s=path.round_trip_time_s)) as connect:
        for size in EDGES:
            # There, and the four bytes of the answer back.
            least_s = upload_s(size, path, head_bytes=0) + path.round_trip_time_s / 2
            for _ in range(20):  # a busy machine makes it later, never sooner
                taken_s = answered_s(connect, size)
                assert taken_s >= least_s
                if taken_s < least_s + path.round_trip_time_s / 2:
                    break
            else:
                pytest.fail(f"{size} bytes never arrived within {rounds(size, path, head_bytes=0)} rounds")


# The decision


@law
@given(SIZES, SIZES, CPU, PATHS)
def test_what_is_encoded_gets_smaller_and_saves_more_than_it_costs(
    plain: int, encoded: int, cpu_s: float, path: Path
) -> None:
    made = decide(plain_bytes=plain, encoded_bytes=encoded, cpu_s=cpu_s, path=path)

    gained_s = upload_s(plain, path) - upload_s(encoded, path)
    assert made.saving_s == pytest.approx(gained_s - cpu_s)
    assert made.encode == (encoded < plain and gained_s > cpu_s)
    assert (made.plain_rounds, made.encoded_rounds) == (rounds(plain, path), rounds(encoded, path))


@law
@given(SIZES, SIZES, CPU, PATHS)
def test_the_reason_is_one_plain_sentence(plain: int, encoded: int, cpu_s: float, path: Path) -> None:
    reason = decide(plain_bytes=plain, encoded_bytes=encoded, cpu_s=cpu_s, path=path).reason

    assert re.fullmatch(r"[A-Z0-9][^\n]*[^.\n]\.", reason)
    assert ". " not in reason


@law
@given(SIZES, SIZES, PATHS)
def test_without_a_limit_of_the_link_the_saving_is_whole_round_trips(plain: int, encoded: int, path: Path) -> None:
    path = replace(path, uplink_bytes_per_s=None)
    made = decide(plain_bytes=plain, encoded_bytes=encoded, cpu_s=0.002, path=path)

    saved = made.plain_rounds - made.encoded_rounds
    assert made.saving_s == pytest.approx(saved * path.round_trip_time_s - 0.002)


@pytest.mark.parametrize(
    ("changed", "encode", "reason"),
    [
        ({}, True, "32,000 bytes instead of 123,400 take 2 round trips of 40.0 ms instead of 4."),
        (
            {"encoded_bytes": 2_000},
            True,
            "2,000 bytes instead of 123,400 take 1 round trip of 40.0 ms instead of 4.",
        ),
        ({"encoded_bytes": 123_400}, False, "The body takes 4 round trips either way."),
        ({"plain_bytes": 42_000, "encoded_bytes": 15_000}, False, "The body takes 2 round trips either way."),
        ({"plain_bytes": 13_000, "encoded_bytes": 4_000}, False, "The body takes 1 round trip either way."),
        (
            {"cpu_s": 0.08},
            False,
            "32,000 bytes instead of 123,400 take 80.0 ms of CPU time, and save 80.0 ms on the way.",
        ),
        (
            {
                "plain_bytes": 13_000,
                "encoded_bytes": 3_000,
                "path": Path(round_trip_time_s=0.04, uplink_bytes_per_s=1e6),
            },
            True,
            "3,000 bytes instead of 13,000 arrive 9.0 ms sooner on this uplink.",
        ),
        (
            {"path": Path(round_trip_time_s=0.0001)},
            False,
            "32,000 bytes instead of 123,400 take 1.0 ms of CPU time, and save 0.2 ms on the way.",
        ),
    ],
)
def test_a_decision_says_why(changed: dict[str, Any], encode: bool, reason: str) -> None:
    path = changed.pop("path", Path(round_trip_time_s=0.04))
    chosen = {"plain_bytes": 123_400, "encoded_bytes": 32_000, "cpu_s": 0.001} | changed

    made = decide(path=path, **chosen)

    assert made.encode is encode
    assert made.reason.startswith(reason)
