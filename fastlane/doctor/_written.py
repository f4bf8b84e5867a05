"""Where what was measured is not what is written down of the provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..providers.registry import UNKNOWN
from ._findings import MeasuredFact, ProviderFinding, lasting

if TYPE_CHECKING:
    from ..providers import ProviderFacts


def compare(known: ProviderFacts | None, findings: Iterable[ProviderFinding]) -> ProviderFinding | None:
    """Say where the two differ; None where nothing is written down of what was measured."""
    if known is None or known.slug == UNKNOWN:
        return None
    written = dict(known.all_facts())
    measured = {path: fact for path, (_, fact) in lasting(findings).items()}
    both = {path: fact for path, fact in measured.items() if path in written and written[path].value is not None}
    if not both:
        return None
    differing = [path for path, fact in both.items() if differs(fact, written[path].value)]
    other = [
        f"{'.'.join(path)}: {_shown(both[path].value)} here, {_shown(written[path].value)} written down "
        f"({written[path].evidence})"
        for path in differing
    ]
    return ProviderFinding(
        group="the provider",
        looked_at="what is written",
        seen="; ".join(other) if other else f"agrees with all {len(both)} facts that were measured",
        state="notable" if other else "seen",
        advice="Give the measured facts to the plays that need them: RequestEncoding(facts=…)." if other else "",
        value={
            "provider": known.slug,
            "compared": len(both),
            "differing": [".".join(path) for path in differing],
        },
    )


def differs(measured: MeasuredFact, written: Any) -> bool:
    """Whether both cannot be true: a look sees some of what there is, but never what there is not."""
    value = measured.value
    if isinstance(written, Mapping):
        return any(name in written and written[name] != each for name, each in value.items())
    if isinstance(written, list | tuple):
        if not isinstance(value, list | tuple):  # a parameter that was taken, of which some values are known
            return value is False
        if measured.path[0] == "encodings" and measured.is_whole:
            return set(value) != set(written)
        return not {str(each).lower() for each in value} <= {str(each).lower() for each in written}
    return bool(value != written)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else "no" if value is False else str(value)
