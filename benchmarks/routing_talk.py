"""The talk's first play: ten calls on the model that is good enough and fast, against ten on the other one by its name.

Ten sequential calls, 10,000 tokens in, 500 out. One provider has 1.62 s to its first token and 1,823 tokens/s then
(gpt-oss-120b), the other 75.1 s and 60 tokens/s (GPT-5.5); both stand in the catalog that the package brings as an
example, and here take a tenth of their times, each in a process of its own. Once the calls ask for "fastlane/auto" on a
client with `Routing` and a quality bar that both clear, once they name the slower model; each pair in random order, on
new clients. Inside: from the first call to the end of the tenth stream. Outside: a call before these, which opens the
connection and has Python load what it needs. Computed: 10 x (first token + 500 / rate) of each, 44 times. At a tenth
the fast one sends a token every 55 us, and a millisecond of a call's own work counts as ten: what a call takes beyond
the computed is `tenth_fast_lost_ms`, and which part of that its provider took by its own log stands beside it. The ten
fast calls are made once more in the times of the talk: `whole_computed_ratio` takes those, and ten times the slow ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import fastlane
from benchmarks._paired import median
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import percentile, wishes
from benchmarks._upstreams import ASKED, upstreams
from fastlane._clock import now_ns
from fastlane.catalog import Catalog, CatalogModel
from fastlane.emulator import Emulator, ProviderModel, RequestLog, preset

_TOKENS_IN, _TOKENS_OUT = 10_000, 500
_AUTO = "fastlane/auto"
_QUALITY_BAR = 30
_FAST, _SLOW = "gpt-oss-120b", "GPT-5.5"
_PRESETS = {_FAST: "gpt-oss-120b", _SLOW: "gpt-5.5"}
_TENTH = 0.1
_MESSAGES: list[Any] = [{"role": "user", "content": "Read on. " * (4 * _TOKENS_IN // 9)}]


def _provider(name: str, scale: float) -> ProviderModel:
    """The preset of one of both, in so much of its time, and every gap between tokens the same."""
    first_s, rate = _published(name)
    return replace(
        preset(_PRESETS[name]), prefill_base_s=scale * first_s, inter_token_s=scale / rate, inter_token_jitter=0.0
    )


def _published(name: str) -> tuple[float, float]:
    model = Catalog.example().named(name)
    ((tokens, first_s),) = model.first_token_s
    assert tokens == _TOKENS_IN
    return first_s, model.tokens_per_s


def _computed_s(name: str, calls: int, scale: float) -> float:
    first_s, rate = _published(name)
    return scale * calls * (first_s + _TOKENS_OUT / rate)


def _catalog(places: dict[str, str], scale: float) -> Catalog:
    """The example's two models, in so much of their times, where the emulated ones are."""
    example = Catalog.example()
    models = []
    for name, base_url in places.items():
        one = example.named(name)
        given = {field: getattr(one, field) for field in type(one).model_fields}
        first_s, rate = _published(name)
        given |= {"first_token_s": [(_TOKENS_IN, scale * first_s)], "tokens_per_s": rate / scale}
        models.append(CatalogModel(**{**given, "base_url": base_url, "api_key_env": None}))
    return Catalog(models=tuple(models), tasks=example.tasks)


class _Turn(NamedTuple):
    """One task of ten calls."""

    total_s: float
    first_token_s: float
    """The median of its calls."""
    lost_ms: float
    """The median call's milliseconds beyond what its provider was to take."""
    sent_late_ms: float
    """Of these, those that the provider took too long by its own log."""


def _call(client: fastlane.OpenAI, model: str, asked: dict[str, str]) -> None:
    stream = client.chat.completions.create(
        model=model, messages=_MESSAGES, max_tokens=_TOKENS_OUT, stream=True, extra_headers=asked
    )
    events = sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in stream)
    if events != _TOKENS_OUT:
        raise RuntimeError(f"{model} brought {events} tokens, and was to bring {_TOKENS_OUT}")


def _turn(tag: str, model: str, places: dict[str, str], logs: dict[str, Emulator], calls: int, scale: float) -> _Turn:
    play = fastlane.Routing(_catalog(places, scale), min_quality=_QUALITY_BAR, forward_headers=ASKED)
    wanted = _FAST if model == _AUTO else _SLOW
    asked = wishes(tag=tag, output_tokens=_TOKENS_OUT)
    taken: list[float] = []
    with fastlane.OpenAI(
        base_url=places[_SLOW],
        api_key="none",
        max_retries=0,
        only_plays=[fastlane.Connection(), play],
        raise_play_errors=True,
    ) as client:
        # (The slow one's own times would be waited for in vain; Routing does not pass these two wishes on.)
        _call(client, model, {**asked, **wishes(tag="before", prefill_ms=0, token_ms=0)})
        began = now_ns()
        for _ in range(calls):
            called = now_ns()
            _call(client, model, asked)
            taken.append((now_ns() - called) / 1e9)
        total_s = (now_ns() - began) / 1e9
        records = client.calls[-calls:]
    log = [one for one in logs[wanted].log() if one.tag == tag]
    _check(log, calls, wanted)
    expected_s = _computed_s(wanted, 1, scale)
    return _Turn(
        total_s=total_s,
        first_token_s=median([record.time_to_first_token_s or 0.0 for record in records]).value,
        lost_ms=1e3 * (median(taken).value - expected_s),
        sent_late_ms=1e3 * (median([_sent_s(one) for one in log]).value - expected_s),
    )


def _sent_s(one: RequestLog) -> float:
    assert one.body_complete_ns is not None
    return (one.token_ns[-1] - one.body_complete_ns) / 1e9


def _check(log: Sequence[RequestLog], calls: int, wanted: str) -> None:
    """Whether the provider has seen what the task was to be."""
    if len(log) != calls:
        raise RuntimeError(f"{wanted} was to get {calls} requests, and got {len(log)}")
    for one in log:
        if one.output_tokens != _TOKENS_OUT or abs(one.prompt_tokens - _TOKENS_IN) > _TOKENS_IN / 100:
            raise RuntimeError(f"{wanted} read {one.prompt_tokens} tokens and sent {one.output_tokens}")


def measure(quick: bool) -> Report:
    """Run the pairs at a tenth, then the fast ones in the talk's own times."""
    pairs, calls = (1, 3) if quick else (3, 10)
    order = random.Random(0)
    turns: dict[str, list[_Turn]] = {_FAST: [], _SLOW: []}
    with upstreams([_provider(_FAST, _TENTH), _provider(_SLOW, _TENTH), _provider(_FAST, 1.0)]) as started:
        fast, slow, whole = started
        places = {_FAST: fast.base_url, _SLOW: slow.base_url}
        logs = {_FAST: fast, _SLOW: slow}
        for pair in range(pairs):
            arms = [(_FAST, _AUTO), (_SLOW, _PRESETS[_SLOW])]
            order.shuffle(arms)
            for name, model in arms:
                turns[name].append(_turn(f"{name}:{pair}", model, places, logs, calls, _TENTH))
        places, logs = {_FAST: whole.base_url, _SLOW: slow.base_url}, {_FAST: whole, _SLOW: slow}
        at_whole = _turn("whole", _AUTO, places, logs, calls, 1.0)
    ratio = median([theirs.total_s / ours.total_s for ours, theirs in zip(turns[_FAST], turns[_SLOW], strict=True)])
    computed = _computed_s(_SLOW, calls, 1.0) / _computed_s(_FAST, calls, 1.0)
    fast_s, slow_s = (median([one.total_s for one in turns[name]]).value for name in (_FAST, _SLOW))
    figures: dict[str, Figure] = {
        "ratio": ratio.value,
        "low_ratio": ratio.low,
        "high_ratio": ratio.high,
        "computed_ratio": computed,
        "off_computed_ratio": abs(ratio.value / computed - 1),
        "routed_s": fast_s,
        "routed_computed_s": _computed_s(_FAST, calls, _TENTH),
        "named_s": slow_s,
        "named_computed_s": _computed_s(_SLOW, calls, _TENTH),
        "tenth_fast_first_token_ms": 1e3 * median([one.first_token_s for one in turns[_FAST]]).value,
        "tenth_fast_lost_ms": median([one.lost_ms for one in turns[_FAST]]).value,
        "tenth_fast_lost_by_the_provider_ms": median([one.sent_late_ms for one in turns[_FAST]]).value,
        "tenth_fast_slowest_task_s": percentile([one.total_s for one in turns[_FAST]], 1.0),
        "whole_fast_s": at_whole.total_s,
        "whole_fast_computed_s": _computed_s(_FAST, calls, 1.0),
        "whole_computed_ratio": slow_s / _TENTH / at_whole.total_s,
        "pairs": pairs,
        "calls_of_a_task": calls,
    }
    return Report(
        figures=figures,
        reach=(Reach(figure="off_computed_ratio", op="<=", target=0.1),),
        conditions={
            "scale": "1:10 in time",
            "tokens_in": _TOKENS_IN,
            "tokens_out": _TOKENS_OUT,
            "fast": f"{_FAST}: 1.62 s, 1,823 tokens/s; here 0.162 s, 18,230 tokens/s",
            "slow": f"{_SLOW}: 75.1 s, 60 tokens/s; here 7.51 s, 600 tokens/s",
            "catalog": f"the example's two, quality bar {_QUALITY_BAR}",
            "streamed": True,
            "tls": True,
        },
    )
