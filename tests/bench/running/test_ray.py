"""Shards as actors on a real cluster of two nodes, both on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane.bench import Benchmark, Embedded
from fastlane.bench.load import Closed
from fastlane.bench.recorded import read_run
from fastlane.bench.running._ray import ray_shards
from fastlane.bench.workloads import code_review

# The cluster's services must listen on this machine only; Ray takes 127.0.0.1 for its external address.
_FIRST, _SECOND = "127.0.0.2", "127.0.0.3"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two nodes with a core each."""
    pytest.importorskip("ray", reason="ray has no wheel for this Python")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's workers run at niceness 15 otherwise: beside other work they would not begin in time.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # What is driven here is Ray's own test cluster, which warns of what it does itself.
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": _FIRST}
    started: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        started.add_node(num_cpus=1, node_ip_address=_SECOND)
        yield started.address
    finally:
        started.shutdown()


@pytest.mark.slow
def test_two_nodes_send_a_part_each_and_their_records_are_merged(cluster: str, tmp_path: Path) -> None:
    talks = code_review().limited(2)
    experiment = Benchmark(
        arms=("baseline", "fastlane"),
        workload=talks,
        load=Closed(users=(2,), think_s=0),
        provider=Embedded(preset="instant", round_trip_time_s=0.0),
        passes=1,
        processes=2,
    )

    with ray_shards(cluster, shards=2, loopback_only=True) as make_shard:
        recorded = experiment.run(tmp_path, make_shard=make_shard)

    assert recorded.ended == "finished"
    assert {sample.shard for sample in recorded.measured()} == {0, 1}
    assert len(recorded.measured()) == 3 * sum(len(talk.turns) for talk in talks.conversations)
    assert not [sample.error for sample in recorded.samples if sample.error]
    pids = {sample.call["process"] for sample in recorded.samples if sample.call and "process" in sample.call}
    assert len(pids) in (0, 2)
    # The provider saw every request of both nodes, and no other.
    assert recorded.log is not None
    assert sorted(sample.tag for sample in recorded.samples) == sorted(str(entry.tag) for entry in recorded.log)
    assert len(read_run(tmp_path).samples) == len(recorded.samples)


@pytest.mark.slow
def test_too_small_ray_cluster_is_refused_before_sending(cluster: str) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"3 shards need a core each, and the Ray cluster .* has 2 in 2 nodes"),
        ray_shards(cluster, shards=3, loopback_only=True),
    ):
        pass


def test_address_at_which_no_cluster_answers_is_explained() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"no Ray cluster answers at '127\.0\.0\.1:9': .*refused"),
        ray_shards("127.0.0.1:9", shards=1, loopback_only=True),
    ):
        pass
