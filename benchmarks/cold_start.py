"""What a fresh process pays before its first answer: importing the client, making one, and the first streamed token.

The sides take turns, in reversed order every other round. Outside of all figures: the compilation of modules, which a
first, unmeasured run of each side has done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks._paired import added, in_turns, middle, paired
from benchmarks._report import Figure, Report
from fastlane.emulator import Emulator, preset

# What nobody should pay for who only wants to make calls.
_KEPT_OUT = (
    "numpy", "opentelemetry", "tiktoken", "rich", "typer", "trustme", "fastlane.bench", "fastlane.emulator"
)  # fmt: skip


class _Child(NamedTuple):
    """What a fresh process took."""

    wall_ms: float
    """Until it printed what was expected of it."""
    cpu_ms: float
    """Until it ended."""
    memory_mib: float
    """The most that was resident."""


def _child(code: str, environment: Mapping[str, str], until: str) -> _Child:
    begun = time.perf_counter()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        if child.stdout.readline().strip() != until:
            raise RuntimeError(f"a fresh process did not print {until!r}: {code}")
        wall_ms = 1e3 * (time.perf_counter() - begun)
        _, status, taken = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return _Child(wall_ms, 1e3 * (taken.ru_utime + taken.ru_stime), taken.ru_maxrss / per_mib)


def import_cost(quick: bool) -> Report:
    """What `import fastlane` adds to the CPU time of `import openai`, in a fresh interpreter.

    Inside: everything that the interpreter does from start to exit.
    """
    code = {"stock": "import openai; openai.OpenAI", "fastlane": "import fastlane; fastlane.OpenAI"}
    taken = in_turns(lambda side: _child(code[side], {}, "").cpu_ms, code, 12 if quick else 40, warm_ups=1)
    listing = f"import fastlane, json, sys; print(json.dumps([name for name in {_KEPT_OUT} if name in sys.modules]))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True).stdout)
    return Report(
        figures={
            **added("added_cpu", taken["fastlane"], taken["stock"], "ms"),
            "stock_cpu_ms": middle(taken["stock"]),
            "fastlane_cpu_ms": middle(taken["fastlane"]),
            "modules_that_should_not_load": len(loaded),
        },
        reach={"added_cpu_ms": "<= 60", "modules_that_should_not_load": "== 0"},
        conditions={"pairs": len(taken["stock"]), "loaded_none_the_less": loaded},
    )


# Without trio, which few applications have, and which openai's HTTP library imports where it is installed.
_FIRST_TOKEN = """
import sys
sys.modules["trio"] = None
from {package} import OpenAI
question = [{{"role": "user", "content": "Is water wet?"}}]
client = OpenAI(base_url="{base_url}", api_key="none")
for chunk in client.chat.completions.create(model="instant", messages=question, stream=True):
    if chunk.choices and chunk.choices[0].delta.content:
        print("token", flush=True)
        break
"""


def cold_start(quick: bool) -> Report:
    """What a fresh process takes to its first streamed token from the emulator without delays, fastlane / openai.

    Inside: wall time from the start of the interpreter to the token, CPU time from its start to its end, and the most
    memory that was resident. Outside: trio, which openai's HTTP library imports where it is installed.
    """
    with Emulator(model=preset("instant"), seed=0) as provider:

        def first_token(package: str) -> _Child:
            code = _FIRST_TOKEN.format(package=package, base_url=provider.base_url)
            return _child(code, provider.environment, "token")

        taken = in_turns(first_token, ("openai", "fastlane"), 8 if quick else 30, warm_ups=1)
    figures: dict[str, Figure] = {}
    for at, what in enumerate(("wall", "cpu")):
        ours, theirs = ([one[at] for one in taken[package]] for package in ("fastlane", "openai"))
        figures |= paired(what, ours, theirs)
        figures |= {f"fastlane_{what}_ms": middle(ours), f"openai_{what}_ms": middle(theirs)}
    memory = {package: [one.memory_mib for one in taken[package]] for package in taken}
    figures |= added("added_memory", memory["fastlane"], memory["openai"], "mib")
    figures["openai_memory_mib"] = middle(memory["openai"])
    return Report(
        figures=figures,
        reach={"wall_ratio": "<= 1", "cpu_ratio": "<= 1", "added_memory_mib": "<= 12"},
        conditions={"pairs": len(taken["openai"])},
    )
