from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import errors
from fastlane.emulator import Dialect, KeyRateLimits, ProviderModel, Quantiles, ServiceTier, preset, presets
from fastlane.emulator._prompt import read_chat
from fastlane.emulator._provider import Provider
from fastlane.emulator._request import Overrides
from tests.emulator.requests import chat, serving

PROMPT = read_chat({"model": "m", "messages": [{"role": "user", "content": "x"}]})

# preset, mean prompt tokens, and the published quartiles of TTFT and inter-token latency.
REPORTED = [
    ("gpt-4.1-nano-rag", 5_500, (0.57257, 0.65080, 0.76897), (0.009799, 0.010470, 0.011001)),
    ("gpt-4.1-nano-generate", 150, (0.44933, 0.46899, 0.52677), (0.011148, 0.012579, 0.014542)),
    ("gpt-4.1-nano-chat", 150, (0.40688, 0.50923, 0.52992), (0.012314, 0.014064, 0.014650)),
]


def quartiles(values: list[float]) -> tuple[float, ...]:
    values = sorted(values)
    return tuple(values[len(values) * share // 4] for share in (1, 2, 3))


@pytest.mark.parametrize(("name", "tokens", "ttft", "gap"), REPORTED)
def test_sampling_a_preset_gives_the_reports_quartiles_back(
    name: str, tokens: int, ttft: tuple[float, ...], gap: tuple[float, ...]
) -> None:
    provider = Provider(preset(name), seed=3)
    tier, asked = provider.model.service_tiers["default"], Overrides()
    prefills, means = [], []
    for number in range(3_000):
        luck = provider.luck(number, PROMPT, asked)
        prefills.append(provider.prefill_ns(uncached_tokens=tokens, luck=luck, tier=tier, overrides=asked) / 1e9)
        gaps = provider.gaps_ns(luck=luck, tier=tier, overrides=asked)
        means.append(sum(next(gaps) for _ in range(50)) / 50e9)

    assert quartiles(prefills) == pytest.approx(ttft, rel=0.03)
    assert quartiles(means) == pytest.approx(gap, rel=0.03)


def test_every_preset_has_a_description() -> None:
    assert all(presets().values())
    assert all(preset(name).name == name for name in presets())
    with pytest.raises(errors.ConfigurationError, match=r"unknown preset 'x'.*bench"):
        preset("x")


@given(st.tuples(*[st.floats(1e-6, 100)] * 3).map(sorted), st.lists(st.floats(0, 1), min_size=2).map(sorted))
def test_quantile_never_falls_as_its_share_rises(points: list[float], shares: list[float]) -> None:
    quantiles = Quantiles.from_quartiles(*points)
    values = [quantiles.at(share) for share in shares]

    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(values))
    assert [quantiles.at(share) for share in (0.25, 0.5, 0.75)] == pytest.approx(points)
    assert values[0] >= points[0] / 2 * 0.999


@pytest.mark.parametrize(
    "points", [((0, 1),), ((0, 1), (0.5, 2)), ((0, 2), (1, 1)), ((0, -1), (1, 1)), ((0, 1), (0, 1), (1, 1))]
)
def test_points_that_are_no_distribution_are_refused(points: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="uantile"):
        Quantiles(points)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ProviderModel, {"prefill_base_s": -1}),
        (ProviderModel, {"inter_token_s": float("nan")}),
        (ProviderModel, {"inter_token_jitter": 2}),
        (ProviderModel, {"late_share": -0.1}),
        (ProviderModel, {"cache_requests_per_key_per_minute": float("inf")}),
        (ProviderModel, {"service_tiers": {}}),
        (ProviderModel, {"default_output_tokens": "many"}),
        (ServiceTier, {"time_factor": 0}),
        (ServiceTier, {"exhausted": 1.5}),
        (KeyRateLimits, {"requests_per_minute": 0}),
        (KeyRateLimits, {"window": "leaky"}),
    ],
)
def test_setting_that_cannot_work_is_refused_by_name(kind: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigurationError, match=next(iter(settings))):
        kind(**settings)


def test_provider_model_round_trips_through_json() -> None:
    limits = KeyRateLimits(requests_per_minute=3, window="quantized")
    dialect = Dialect(headers={"Server": "x"}, owned_by="me", cached_tokens_path="usage.a.b")
    for model in (
        *map(preset, presets()),
        ProviderModel(rate_limits=limits, model_rate_limits={"a": limits}, dialect=dialect),
    ):
        assert ProviderModel.from_json(json.loads(json.dumps(model.to_json()))) == model


def late(provider: Provider, count: int) -> list[bool]:
    return [provider.luck(number, PROMPT, Overrides()).late for number in range(count)]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_late_share_is_met_by_a_seeded_subset(share: float) -> None:
    provider = Provider(ProviderModel(late_share=share))
    drawn = late(provider, 4_000)

    assert sum(drawn) / len(drawn) == pytest.approx(share, abs=0.025)
    assert drawn == late(provider, 4_000)
    assert (drawn != late(Provider(ProviderModel(late_share=share), seed=1), 4_000)) == (0 < share < 1)


@pytest.mark.asyncio
async def test_request_with_fixed_prefill_time_is_never_late() -> None:
    async with serving(late_share=1.0) as (server, client):
        for header in ("prefill-ms", "draw"):
            await client.post("/chat/completions", json=chat(), headers={f"x-emulator-{header}": "3"})

    assert [record.late for record in server.log] == [False, True]


@pytest.mark.asyncio
async def test_lateness_depends_on_draw_and_attempt_not_on_arm() -> None:
    async with serving(late_share=0.5) as (server, client):
        for arm in ("with", "without", "with"):
            for draw in range(50):
                headers = {"x-emulator-draw": str(draw), "x-emulator-tag": f"{arm}:{draw}"}
                await client.post("/chat/completions", json=chat(), headers=headers)
    late = [record.late for record in server.log]
    one, other, again = late[:50], late[50:100], late[100:]

    assert one == other != again
    assert 10 < sum(again) < 40
