"""Make the workloads of presets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import counter

from ._airline import airline
from ._code_review import code_review
from ._lengths_made import OfLengths
from ._preset_table import PRESETS
from ._preset_types import Preset, Scenario
from ._workload import Conversation, Made, Workload


def presets() -> Mapping[str, Preset]:
    """Return all presets by name: source, lengths, users and scenarios of each."""
    return MappingProxyType(PRESETS)


def preset_named(name: str) -> Preset:
    """Return a preset by its name. Raises ConfigurationError, which lists the known ones."""
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}: the known ones are {', '.join(PRESETS)}")
    return PRESETS[name]


def users_of(name: str) -> tuple[int, ...]:
    """Return the numbers of requests in flight that a preset is run with. Raises ConfigurationError."""
    return preset_named(name.partition("/")[0]).users


def preset(name: str, *, seed: int = 0, requests: int | None = None, model: str | None = None) -> Workload:
    """Return the workload of a preset with one setting of lengths, or of one of several: "scaling/chatbot".

    `requests` is how many conversations it has. Prompts have their number of tokens by the tokenizer of `model` where
    that lies on disk, else by construction (o200k_base and cl100k_base): the notes say which.
    Raises ConfigurationError for an unknown name.
    """
    of, _, scenario = name.partition("/")
    whole = preset_named(of)
    names = [each.name for each in whole.scenarios]
    if scenario not in names:
        known = ", ".join(f"{of}/{each}" for each in names if each)
        raise ConfigurationError(
            f"{name!r} is no single workload: {of!r} has the scenarios {known}"
            if known
            else f"unknown workload {name!r}: {of!r} has no scenarios"
        )
    return _made(whole, whole.scenarios[names.index(scenario)], seed, requests, model)


def scenarios(
    name: str, *, seed: int = 0, requests: int | None = None, model: str | None = None
) -> tuple[Workload, ...]:
    """Return the workloads of a preset, one for each setting of lengths; see `preset`. Raises ConfigurationError."""
    whole = preset_named(name)
    return tuple(_made(whole, scenario, seed, requests, model) for scenario in whole.scenarios)


def _made(whole: Preset, scenario: Scenario, seed: int, requests: int | None, model: str | None) -> Workload:
    count = whole.requests if requests is None else requests
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigurationError(f"requests takes 1 or more, got {requests!r:.40}")
    name = f"{whole.name}, {scenario.name}" if scenario.name else whole.name
    if whole.kind == "code review":
        return replace(code_review(), name=name, source=whole.source).limited(requests)
    make = _maker(whole, scenario, name, seed, model)
    return Workload(
        name=name,
        conversations=Made(range(count), make),
        notes=_notes(whole, scenario, model),
        source=whole.source,
        caching_forbidden=whole.caching_forbidden,
        think_s=whole.think_s,
    )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Makes conversations by a function of their number and a seed."""

    make: Callable[[int, int], Conversation]
    seed: int

    def __call__(self, number: int) -> Conversation:
        return self.make(number, self.seed)


def _maker(whole: Preset, scenario: Scenario, name: str, seed: int, model: str | None) -> Callable[[int], Conversation]:
    if whole.kind == "airline":
        return _Numbered(airline, seed)
    if scenario.input is None or scenario.output is None:
        raise ConfigurationError(f"the preset {name!r} lacks lengths: a preset of lengths needs both")
    return OfLengths(
        label=name,
        seed=seed,
        input=scenario.input,
        output=scenario.output,
        calls=whole.calls,
        least_answer_tokens=scenario.output.least if whole.least_output else None,
        model=model,
    )


def _notes(whole: Preset, scenario: Scenario, model: str | None) -> tuple[str, ...]:
    if scenario.input is None or scenario.output is None:
        return ("synthetic conversations",)
    notes = [f"prompts of {scenario.input} tokens, answers of at most {scenario.output}"]
    for what, lengths in (("prompts", scenario.input), ("answers", scenario.output)):
        if not lengths.fixed:
            notes.append(
                f"lengths of {what}: normally distributed, {lengths.mean:,.0f} +- {lengths.deviation:,.0f}, cut off at "
                "both ends"
            )
    exact = counter(model).exact if model is not None else False
    if exact:
        notes.append(f"prompts counted by the tokenizer of {model}")
    else:
        notes.append(
            "prompts of words that are one token each of o200k_base and cl100k_base; gzip makes them 2.3 times smaller"
        )
    if whole.caching_forbidden:
        notes.append("no two prompts share their first three words")
    return tuple(notes)
