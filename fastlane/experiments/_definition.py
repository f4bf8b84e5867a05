"""How an experiment is defined, and whether that is how the other processes know it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigurationError
from ..plays import Play
from ._assignment import Allocation
from ._document import Document

# Where a function is in memory differs from process to process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST_CHARACTERS = 128


def text(what: str, value: Any, example: str) -> str:
    """A name. Raises ConfigurationError."""
    if not isinstance(value, str) or not value.strip() or len(value) > _MOST_CHARACTERS or not value.isprintable():
        raise ConfigurationError(
            f"Experiment() takes {what} such as {example!r}, at most {_MOST_CHARACTERS} characters, got {value!r:.60}"
        )
    return value


def arms_of(arms: Any) -> dict[str, tuple[Play, ...]]:
    """The plays of each arm, the reference first. Raises ConfigurationError."""
    example = '{"control": [Connection()], "encoding": [Connection(), RequestEncoding()]}'
    if not isinstance(arms, Mapping) or len(arms) < 2:
        got = f"{len(arms)} of them" if isinstance(arms, Mapping) else f"a {type(arms).__name__}"
        raise ConfigurationError(f"Experiment(arms=...) takes at least two arms such as {example}, got {got}")
    from ..engine.pipeline import Pipeline

    found: dict[str, tuple[Play, ...]] = {}
    for name, plays in arms.items():
        text("names of arms", name, "control")
        if isinstance(plays, Play | str | Mapping) or not isinstance(plays, Iterable):
            raise ConfigurationError(
                f"Experiment(arms=...) takes a list of plays for each arm, such as {example}; arm {name!r} has "
                f"{plays!r:.60}"
            )
        try:
            found[name] = Pipeline(plays, (), strict=False).plays
        except ConfigurationError as error:
            raise ConfigurationError(f"Experiment(arms=...): arm {name!r}: {error}") from None
    return found


def shares_of(share: Any, arms: Iterable[str]) -> dict[str, float]:
    """The share of each arm but the reference. Raises ConfigurationError."""
    reference, *others = arms
    if not isinstance(share, Mapping):
        raise ConfigurationError(
            f"Experiment(share=...) takes the share of units of each arm but the reference, such as "
            f"{{{others[0]!r}: 0.1}}, got {share!r:.60}"
        )
    for name, value in share.items():
        if name == reference:
            raise ConfigurationError(
                f"Experiment(share=...) has a share for the reference {name!r}, which is the first arm and gets what "
                "the others leave: take it out"
            )
        if name not in others:
            raise ConfigurationError(
                f"Experiment(share=...) has a share for {name!r:.60}, which is none of the arms "
                f"({', '.join(map(repr, others))})"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigurationError(f"Experiment(share=...) takes shares of 0 to 1; {name!r} has {value!r:.60}")
    missing = [name for name in others if name not in share]
    if missing:
        raise ConfigurationError(f"Experiment(share=...) has no share for {missing[0]!r}: give 0 for an arm to come")
    total = sum(share.values())
    if total > 1 + 1e-9:
        raise ConfigurationError(
            f"Experiment(share=...): the shares are {total:g} together, and there is no more than 1"
        )
    return {name: float(share[name]) for name in others}


def defined(
    *, name: str, arms: Mapping[str, tuple[Play, ...]], unit: Any, salt: str | None, slow_s: float | None
) -> dict[str, Any]:
    """What must be the same in every process, as plain JSON data."""
    return {
        "name": name,
        "arms": [[arm, [_ADDRESS.sub("", repr(play)) for play in plays]] for arm, plays in arms.items()],
        "unit": unit if isinstance(unit, str) or unit is None else "a function",
        "salt": None if salt is None else hashlib.blake2b(salt.encode(), digest_size=8, person=b"fl-salt").hexdigest(),
        "slow_s": slow_s,
    }


def first_document(definition: Mapping[str, Any], shares: Mapping[str, float], wall_ns: int) -> Document:
    """The state of an experiment that begins."""
    intervals = Allocation(definition["arms"][0][0], ()).ramped(shares).intervals
    return Document(definition=definition, shares=dict(shares), intervals=intervals, since_wall_ns=wall_ns)


def difference(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """What differs between two definitions, in a sentence; None where nothing does."""
    old, new = dict(map(tuple, theirs["arms"])), dict(map(tuple, ours["arms"]))
    found = []
    if list(old) != list(new):
        found.append(f"its arms were {', '.join(map(repr, old))}, and are {', '.join(map(repr, new))}")
    found += [
        f"the plays of arm {arm!r} were [{', '.join(plays)}], and are [{', '.join(new[arm])}]"
        for arm, plays in old.items()
        if arm in new and list(plays) != list(new[arm])
    ]
    if theirs["unit"] != ours["unit"]:
        found.append(f"its unit was {theirs['unit']!r}, and is {ours['unit']!r}")
    if theirs["salt"] != ours["salt"]:
        found.append("its salt was another one")
    if theirs["slow_s"] != ours["slow_s"]:
        found.append(
            f"its guard of time_to_first_token_p95 was at {theirs['slow_s']!r} s, and is at {ours['slow_s']!r} s"
        )
    if not found:
        return None
    return (
        f"the experiment {name!r} is kept with another definition: {'; '.join(found)}. What was counted so far says "
        "nothing about that: give it another name"
    )


def reconciled(name: str, document: Document, shares: Mapping[str, float], wall_ns: int) -> bool:
    """Ramp up to the configured shares where they are larger; whether that was to be done.

    Shares of an earlier stage are those of a process that is configured as it was before: it follows the others.
    Raises ConfigurationError for any others.
    """
    if document.shares == shares or shares in document.past:
        return False
    smaller = [arm for arm in shares if shares[arm] < document.shares[arm]]
    if smaller:
        arm = smaller[0]
        raise ConfigurationError(
            f"the experiment {name!r} is kept with a share of {document.shares[arm]:g} for {arm!r}, got "
            f"{shares[arm]:g}. A share that is configured may only grow: call ramp({arm}=...) or end({arm!r}) on the "
            "experiment, or give it another name"
        )
    document.ramp(shares, wall_ns)
    return True
