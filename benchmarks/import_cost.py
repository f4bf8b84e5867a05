"""What `import fastlane` costs on top of `import openai`, in CPU time of a fresh interpreter.

Inside: everything that the interpreter does from start to exit; the figures of `first_call` hold a first call over an
in-memory transport too, with what both sides import only then. Outside: the network, and the compilation of modules,
which a first, unmeasured run of each side has done.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

from benchmarks._paired import added, differences, in_turns, median
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


_FIRST_CALL = """
import httpx2
from {module} import OpenAI
from benchmarks._prepared import ANSWER, MODEL, Prepared
http_client = httpx2.Client(transport=Prepared("application/json", (ANSWER,)))
client = OpenAI(base_url="http://prepared.invalid/v1", api_key="none", http_client=http_client)
client.chat.completions.create(model=MODEL, messages=[{{"role": "user", "content": "Is water wet?"}}])
"""


def _in_turn(sides: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Start an interpreter for each side in turn."""
    for code in sides.values():
        _child_cpu_ms(code)
    return in_turns(lambda name: _child_cpu_ms(sides[name]), sides, rounds)


def measure(quick: bool) -> Report:
    """Measure the import alone, and the import with a first call."""
    rounds = 12 if quick else 40
    taken = _in_turn({"stock": "import openai; openai.OpenAI", "fastlane": "import fastlane; fastlane.OpenAI"}, rounds)
    calls = _in_turn(
        {"stock": _FIRST_CALL.format(module="openai"), "fastlane": _FIRST_CALL.format(module="fastlane")}, rounds
    )
    loaded = _loaded_by_import()
    return Report(
        figures={
            **added("added_cpu", taken["fastlane"], taken["stock"], "ms"),
            "stock_cpu_ms": median(taken["stock"]).value,
            "fastlane_cpu_ms": median(taken["fastlane"]).value,
            "first_call_added_cpu_ms": median(differences(calls["fastlane"], calls["stock"])).value,
            "first_call_stock_cpu_ms": median(calls["stock"]).value,
            "modules_that_should_not_load": len(loaded),
        },
        reach={"added_cpu_ms": "<= 60", "modules_that_should_not_load": "== 0"},
        conditions={"pairs": len(taken["stock"]), "loaded_none_the_less": loaded},
    )
