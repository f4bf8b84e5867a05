"""What `import fastlane` costs on top of `import openai`, in CPU time of a fresh interpreter.

Inside: everything that the interpreter does from start to exit. Outside: the compilation of modules, which a first,
unmeasured run of each side has done.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

from benchmarks._paired import added, in_turns, median
from benchmarks._report import Report

# What nobody should pay for who only wants to make calls.
_KEPT_OUT = (
    "numpy",
    "opentelemetry",
    "tiktoken",
    "rich",
    "typer",
    "trustme",
    "fastlane.bench",
    "fastlane.emulator",
)


def _child_cpu_ms(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _loaded_by_import() -> list[str]:
    code = f"import fastlane, json, sys; print(json.dumps([name for name in {_KEPT_OUT} if name in sys.modules]))"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [str(name) for name in json.loads(answer.stdout)]


def measure(quick: bool) -> Report:
    """Start an interpreter for each side in turn."""
    rounds = 12 if quick else 40
    code = {"stock": "import openai; openai.OpenAI", "fastlane": "import fastlane; fastlane.OpenAI"}
    for one in code.values():
        _child_cpu_ms(one)
    taken = in_turns(lambda side: _child_cpu_ms(code[side]), code, rounds)
    loaded = _loaded_by_import()
    return Report(
        figures={
            **added("added_cpu", taken["fastlane"], taken["stock"], "ms"),
            "stock_cpu_ms": median(taken["stock"]).value,
            "fastlane_cpu_ms": median(taken["fastlane"]).value,
            "modules_that_should_not_load": len(loaded),
        },
        reach={"added_cpu_ms": "<= 60", "modules_that_should_not_load": "== 0"},
        conditions={"pairs": len(taken["stock"]), "loaded_none_the_less": loaded},
    )
