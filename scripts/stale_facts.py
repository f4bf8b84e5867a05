"""Report facts of providers that were checked too long ago.

    python -m scripts.stale_facts

Exit codes: 0, also with warnings about facts that are older than 120 days; 1 where a fact is older than 240 days.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import date

from fastlane.providers import facts_named, names

_WARNING_DAYS, _ERROR_DAYS = 120, 240


def report(today: date) -> tuple[list[str], bool]:
    """Return one line for each provider with old facts, and whether one of them is too old."""
    lines, is_too_old = [], False
    for slug in names():
        facts = facts_named(slug)
        ages = Counter({".".join(keys): (today - fact.checked).days for keys, fact in facts.all_facts()})
        old = [name for name, days in ages.items() if days > _WARNING_DAYS]
        if old:
            oldest, days = ages.most_common(1)[0]
            is_too_old = is_too_old or days > _ERROR_DAYS
            word = "error" if days > _ERROR_DAYS else "warning"
            lines.append(
                f"{word}: fastlane/providers/{slug}.toml: {len(old)} of {len(ages)} facts were checked more than "
                f"{_WARNING_DAYS} days ago; the oldest is {oldest} ({days} days). Check them again and set their dates."
            )
    return lines, is_too_old


def main() -> int:
    """Print the report."""
    lines, is_too_old = report(date.today())  # noqa: DTZ011 - facts have local dates as well
    print("\n".join(lines) if lines else f"no fact of a provider is older than {_WARNING_DAYS} days")
    return int(is_too_old)


if __name__ == "__main__":
    sys.exit(main())
