"""What a fresh process pays before its first answer: importing the client, making one, and the first streamed token.

The sides take turns, in reversed order every other round. Outside of all figures: the compilation of modules, which a
first, unmeasured run of each side has done.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks._paired import added, in_turns, middle, paired
from benchmarks._report import Figure, Report
from fastlane.emulator import Emulator, preset


class _Child(NamedTuple):
    """What a fresh process took."""

    wall_ms: float
    """Until it printed what was expected of it."""
    cpu_ms: float
    """Until it ended."""
    memory_mib: float
    """The most that was resident."""


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


def _first_token(package: str, provider: Emulator) -> _Child:
    begun = time.perf_counter()
    command = [sys.executable, "-c", _FIRST_TOKEN.format(package=package, base_url=provider.base_url)]
    environment = {**os.environ, **provider.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        if child.stdout.readline().strip() != "token":
            raise RuntimeError(f"a fresh process of {package} got no token")
        wall_ms = 1e3 * (time.perf_counter() - begun)
        _, status, taken = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return _Child(wall_ms, 1e3 * (taken.ru_utime + taken.ru_stime), taken.ru_maxrss / per_mib)


def cold_start(quick: bool) -> Report:
    """Measure a fresh process up to its first streamed token from the emulator without delays, fastlane / openai.

    Inside: wall time from the interpreter's start to the token, CPU time to its end, and the most resident memory.
    Outside: trio, which openai's HTTP library imports if it is installed.
    """
    with Emulator(model=preset("instant"), seed=0) as provider:
        rounds = 8 if quick else 30
        taken = in_turns(lambda side: _first_token(side, provider), ("openai", "fastlane"), rounds, warm_ups=1)
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
