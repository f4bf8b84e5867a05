"""Report facts of providers that were checked too long ago.

    python -m scripts.stale_facts

Exit codes: 0, also with warnings about facts that are older than 120 days; 1 where a fact is older than 240 days.
"""

from __future__ import annotations

import sys
from datetime import date

from fastlane.providers import facts_named, names

_WARNING_DAYS, _ERROR_DAYS = 120, 240


def report(today: date) -> tuple[list[str], bool]:
    """Return one line for each provider with old facts, and whether one of them is too old."""
    lines, is_too_old = [], False
    for slug in names():
        ages = {".".join(keys): (today - fact.checked).days for keys, fact in facts_named(slug).all_facts()}
        oldest = max(ages, key=ages.__getitem__, default="")
        if oldest and ages[oldest] > _WARNING_DAYS:
            days, old = ages[oldest], sum(days > _WARNING_DAYS for days in ages.values())
            is_too_old = is_too_old or days > _ERROR_DAYS
            lines.append(
                f"{'error' if days > _ERROR_DAYS else 'warning'}: fastlane/providers/{slug}.toml: {old} of {len(ages)} "
                f"facts were checked more than {_WARNING_DAYS} days ago; the oldest is {oldest} ({days} days). Check "
                "them again and set their dates."
            )
    return lines, is_too_old


if __name__ == "__main__":
    found, failed = report(date.today())  # noqa: DTZ011 - facts have local dates as well
    print("\n".join(found) if found else f"no fact of a provider is older than {_WARNING_DAYS} days")
    sys.exit(failed)
