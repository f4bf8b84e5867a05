"""What openai's own clients make of a suite, run once and kept for as long as nothing else is installed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.conformance.judging import Results, Run
from tests.conformance.suite import HERE, Suite


def baseline_of(suite: Suite, run: Run, description: Path | None, work: Path) -> Results:
    """What the stock client makes of a suite; `description` is what the mock server answers by, if one does."""
    made_of = hashlib.sha256("\n".join([str(suite.source), *suite.files, "", *suite.ignored]).encode())
    root = HERE.parents[1]
    for file in (*sorted(HERE.glob("requirements*.txt")), root / "constraints.txt", description):
        made_of.update(file.read_bytes() if file is not None else b"")
    kept = work / "baselines" / f"{made_of.hexdigest()[:16]}.json"
    if kept.exists():
        found = json.loads(kept.read_text())
        return Results(frozenset(found["collected"]), found["outcomes"], tuple(found["uncollected"]))
    results = run("stock", "stock")
    kept.parent.mkdir(parents=True, exist_ok=True)
    content = {"collected": sorted(results.collected), "outcomes": results.outcomes, "uncollected": results.uncollected}
    unfinished = kept.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content))
    unfinished.replace(kept)
    return results
