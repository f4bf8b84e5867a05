"""The talk's first play: ten calls on the model that is good enough and fast, against ten on the other one by its name.

Ten sequential calls, 10,000 tokens in, 500 out. One provider has 1.62 s to its first token and 1,823 tokens/s then
(gpt-oss-120b), the other 75.1 s and 60 tokens/s (GPT-5.5); both stand in the catalog that the package brings as an
example, and here take a tenth of their times, each in a process of its own. Once the calls ask for "fastlane/auto" on a
client with `Routing` and a quality bar that both clear, once they name the slower model; each pair in random order, on
new clients. Inside: from the first call to the end of the tenth stream. Outside: a call before these, which opens the
connection and has Python load what it needs. Computed: 10 x (first token + 500 / rate) of each, 44 times. At a tenth
the fast one sends a token every 55 us, and a millisecond of a call's own work counts as ten.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fastlane
from benchmarks._paired import median, paired
from benchmarks._provider import ASKED, upstreams
from benchmarks._report import Figure, Report
from benchmarks._transport import wishes
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


def _call(client: fastlane.OpenAI, model: str, asked: dict[str, str]) -> None:
    stream = client.chat.completions.create(
        model=model, messages=_MESSAGES, max_tokens=_TOKENS_OUT, stream=True, extra_headers=asked
    )
    events = sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in stream)
    if events != _TOKENS_OUT:
        raise RuntimeError(f"{model} brought {events} tokens, and was to bring {_TOKENS_OUT}")


def _turn(tag: str, name: str, started: dict[str, Emulator], calls: int) -> float:
    """Seconds of one task of ten calls, routed or at the model that is named."""
    places = {one: emulator.base_url for one, emulator in started.items()}
    play = fastlane.Routing(_catalog(places, _TENTH), min_quality=_QUALITY_BAR, forward_headers=ASKED)
    model = _AUTO if name == _FAST else _PRESETS[name]
    asked = wishes(tag=tag, output_tokens=_TOKENS_OUT)
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
            _call(client, model, asked)
        total_s = (now_ns() - began) / 1e9
    _check([one for one in started[name].log() if one.tag == tag], calls, name)
    return total_s


def _check(log: Sequence[RequestLog], calls: int, wanted: str) -> None:
    """Whether the provider has seen what the task was to be."""
    if len(log) != calls:
        raise RuntimeError(f"{wanted} was to get {calls} requests, and got {len(log)}")
    for one in log:
        if one.output_tokens != _TOKENS_OUT or abs(one.prompt_tokens - _TOKENS_IN) > _TOKENS_IN / 100:
            raise RuntimeError(f"{wanted} read {one.prompt_tokens} tokens and sent {one.output_tokens}")


def measure(quick: bool) -> Report:
    """Run the pairs."""
    pairs, calls = (1, 3) if quick else (3, 10)
    order = random.Random(0)
    taken: dict[str, list[float]] = {_FAST: [], _SLOW: []}
    with upstreams([_provider(name, _TENTH) for name in taken]) as emulators:
        started = dict(zip(taken, emulators, strict=True))
        for pair in range(pairs):
            for name in order.sample(list(taken), len(taken)):
                taken[name].append(_turn(f"{name}:{pair}", name, started, calls))
    computed = _computed_s(_SLOW, calls, 1.0) / _computed_s(_FAST, calls, 1.0)
    ratio = paired("", taken[_SLOW], taken[_FAST])
    figures: dict[str, Figure] = {
        "ratio": ratio["_ratio"],
        "low_ratio": ratio["_low_ratio"],
        "high_ratio": ratio["_high_ratio"],
        "computed_ratio": computed,
        "off_computed_ratio": abs(ratio["_ratio"] / computed - 1),
        "routed_s": median(taken[_FAST]).value,
        "routed_computed_s": _computed_s(_FAST, calls, _TENTH),
        "named_s": median(taken[_SLOW]).value,
        "named_computed_s": _computed_s(_SLOW, calls, _TENTH),
        "pairs": pairs,
        "calls_of_a_task": calls,
    }
    return Report(figures=figures, reach={"off_computed_ratio": "<= 0.1"})
