from __future__ import annotations

from hypothesis import given, strategies as st

from fastlane.bench.load import Closed, Open
from fastlane.bench.running._sharding import sharding
from fastlane.bench.workloads import Conversation, Workload

WORKLOAD = Workload(
    name="chat",
    conversations=(
        Conversation(
            name="one",
            messages=({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "x" * 400}),
        ),
    ),
)


def test_a_load_of_less_than_half_of_the_capacity_wants_one_process() -> None:
    found = sharding(Closed(users=(1, 10)), WORKLOAD, 11_000.0)

    assert found.shards == 1
    assert "10 users at 100 tokens/s each are up to 1,000 chunks/s" in found.sentence
    assert "1 process is enough" in found.sentence


def test_fifty_streams_of_two_thousand_tokens_want_many() -> None:
    found = sharding(Closed(users=(50,)), WORKLOAD, 11_000.0, stream_tokens_per_s=2_000.0)

    assert found.shards == 19
    assert found.offered_chunks_per_s == 100_000
    assert "19 processes share the lanes" in found.sentence


def test_an_open_load_offers_its_rate_times_its_answers() -> None:
    assert sharding(Open(rates=(5.0, 50.0)), WORKLOAD, 11_000.0).offered_chunks_per_s == 5_000
    assert sharding(Open(rates=(200.0,)), WORKLOAD, 11_000.0).shards == 4


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=5),
    st.floats(1.0, 1e6),
    st.floats(1.0, 5_000.0),
)
def test_no_process_is_asked_for_more_than_is_trusted_unless_it_has_one_lane(
    users: list[int], capacity: float, speed: float
) -> None:
    found = sharding(Closed(users=tuple(users)), WORKLOAD, capacity, stream_tokens_per_s=speed)

    assert 1 <= found.shards <= max(users)
    assert found.shards == max(users) or found.offered_chunks_per_s / found.shards <= capacity / 2 * 1.000_001
