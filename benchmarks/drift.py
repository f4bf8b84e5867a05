"""Whether what broke a prompt's beginning is named: its kind, the value and the place, for one thing that was changed.

Conversations of an airline's and of a coding agent, recorded where they are there and otherwise built, go twice over
our client and TLS to the embedded provider: as they are, and with one more turn and one thing changed, in 14 ways. Two
others with the same tools and mostly the same system prompt have gone before, and a call that names the conversation
stands between the two, as apps make them. Right is a place where the path is that of the value and the character is the
true one, rounded down by less than 16. What the provider's cache holds is real: it is emptied (evicted), or older than
its lifetime (expired). Nothing is remembered from one change to the next.

Inside: what records of real calls say. Outside: any time; nothing is timed here.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import fastlane
from benchmarks._conversation import conversation, tools
from benchmarks._mutated_tools import Body, Mutation
from benchmarks._mutations import MUTATORS
from benchmarks._provider import fact, providers
from benchmarks._report import Figure, Report
from fastlane.emulator import Emulator, preset
from fastlane.providers import ProviderFacts, registered
from fastlane.providers.facts import Cache
from fastlane.records.plays import Drift

_RECORDED = Path(__file__).parent.parent.parent / "shared/data"
_LIFETIME_S = 0.4
_ROUNDING = 16
_NEIGHBOURS = 2
_BESIDE = {"role": "system", "content": "Name this conversation in at most five words."}
# Not the key: on one machine the embedded provider keeps nothing apart by it, and says that it was read.
_PARAMETERS: tuple[tuple[str, Any, Any], ...] = (
    ("reasoning_effort", "low", "high"),
    ("verbosity", "low", "high"),
    ("service_tier", "default", "priority"),
)


class _Verdict(NamedTuple):
    """One mutation, and what was said of it."""

    kind: str
    said: str
    placed: bool


def _conversations() -> tuple[list[list[Body]], list[Body], bool]:
    """Messages of several conversations, the tools of all of them, and whether they were recorded."""
    paths = [_RECORDED / name for name in ("airline_agent_runs.jsonl", "coding_agent_runs.jsonl")]
    listed = _RECORDED / "airline_tools.json"
    if not all(path.is_file() for path in (*paths, listed)):
        return [conversation(30 + number) for number in range(12)], tools(), False
    runs = [json.loads(line)["messages"] for path in paths for line in path.read_text().splitlines()]
    return [run for run in runs if len(run) >= 12], json.loads(listed.read_text()), True


def _outside(kind: str, rng: random.Random, body: Body) -> Mutation:
    """What changes no segment: another model or parameter, or nothing at all."""
    before, after, path = body, copy.deepcopy(body), None
    name = ""
    if kind == "changed_model":
        # One that nobody has asked before: for any other the prompt may be in its cache.
        after["model"], path = f"model-{rng.getrandbits(32):08x}", "model"
    if kind == "changed_parameter":
        name, one, other = rng.choice(_PARAMETERS)
        before, after, path = {**body, name: one}, {**after, name: other}, name
    return Mutation(kind, name, before, after, path, None)


@contextmanager
def _known(emulator: Emulator, lifetime_s: float) -> Iterator[None]:
    """What a provider's facts say of its cache, registered for an emulated one."""
    cache = Cache(automatic=fact(True), minimum_tokens=fact(1_024), block_tokens=fact(128), lifetime_s=fact(lifetime_s))
    with registered(ProviderFacts(slug="emulated", cache=cache), origins=[emulator.base_url]):
        yield


def _said(client: fastlane.OpenAI, emulator: Emulator, mutation: Mutation, more: list[Body]) -> Drift | None:
    """What the client says of the second of the two calls."""
    if mutation.kind not in {"expired", "evicted"}:
        _send(client, mutation.before)
        _send(client, {"model": mutation.before["model"], "messages": [_BESIDE, mutation.before["messages"][1]]})
    else:
        # Twice, so that it is known to have been kept.
        _send(client, mutation.before)
        _send(client, mutation.before)
        if mutation.kind == "evicted":
            emulator.forget_prompts()
        else:
            time.sleep(_LIFETIME_S + 0.1)
    _send(client, {**mutation.after, "messages": [*mutation.after["messages"], *more]})
    record = client.last_call
    assert record is not None
    assert record.prompt_cache is not None
    return record.prompt_cache.drift


def _send(client: fastlane.OpenAI, body: Body) -> None:
    client.chat.completions.create(**body, max_completion_tokens=1)


def _judged(mutation: Mutation, said: Drift | None) -> _Verdict:
    placed = said is not None and said.path == mutation.path
    if placed and said is not None and mutation.character is not None:
        placed = said.character is not None and said.character <= mutation.character < said.character + _ROUNDING
    return _Verdict(mutation.kind, "none" if said is None else said.kind, placed)


def _verdicts(each: int, seed: int) -> tuple[list[_Verdict], bool]:
    rng = random.Random(seed)
    runs, listed, recorded = _conversations()
    found: list[_Verdict] = []
    kinds = [*MUTATORS, "changed_model", "changed_parameter"]
    # What was emptied is truly gone, whatever is changed afterwards: the two that lose it have a provider of their own.
    for several, lifetime_s in ((kinds, 300.0), (["evicted"], 300.0), (["expired"], _LIFETIME_S)):
        model = replace(preset("instant"), cache_expiry_s=lifetime_s)
        plays = [fastlane.Connection(), fastlane.PromptCache()]
        with (
            providers(1, model=model) as (emulator,),
            _known(emulator, lifetime_s),
            fastlane.OpenAI(base_url=emulator.base_url, api_key="none", max_retries=0, only_plays=plays) as client,
        ):
            for kind in several * each:
                run = rng.choice(runs)
                turns = rng.randrange(9, len(run) - 2)
                body = {"model": "benchmark", "messages": copy.deepcopy(run[:turns]), "tools": copy.deepcopy(listed)}
                mutation = MUTATORS[kind](rng, body) if kind in MUTATORS else _outside(kind, rng, body)
                client.prompt_cache.clear()
                emulator.forget_prompts()
                for other in rng.sample(runs, _NEIGHBOURS):
                    if other is not run:
                        _send(client, {**body, "messages": other[: rng.randrange(4, len(other))]})
                found.append(_judged(mutation, _said(client, emulator, mutation, run[turns : turns + 2])))
    return found, recorded


def measure(quick: bool) -> Report:
    """Change one thing in 14 ways, 50 times each."""
    each = 6 if quick else 50
    verdicts, recorded = _verdicts(each, seed=17)
    figures: dict[str, Figure] = {
        "kinds_ratio": sum(one.said == one.kind for one in verdicts) / len(verdicts),
        "places_ratio": sum(one.placed for one in verdicts) / len(verdicts),
        "kinds": len({one.kind for one in verdicts}),
        "changes": len(verdicts),
    }
    for kind in dict.fromkeys(one.kind for one in verdicts):
        right = [one.said == kind for one in verdicts if one.kind == kind]
        figures[f"{kind}_ratio"] = sum(right) / len(right)
    return Report(
        figures=figures,
        reach={"kinds_ratio": ">= 0.95", "places_ratio": "== 1"},
        conditions={"conversations": "recorded" if recorded else "built", "each": each},
    )
