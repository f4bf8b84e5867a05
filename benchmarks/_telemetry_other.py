"""What another instrumentation adds to the stock client's calls, in a process of its own: one line of JSON.

Instrumentations take the place of methods of openai's for the whole process, so that no two of them share one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import openai

from benchmarks._paired import median
from benchmarks._telemetry_blocks import Taken, stamped_client, take
from benchmarks._telemetry_sides import instrumented

FEW_CHUNKS, CHUNKS, MANY_CHUNKS = 4, 200, 2_000


def measured(name: str, rounds: int) -> dict[str, float]:
    """Start the process and return its figures."""
    command = [sys.executable, "-m", "benchmarks._telemetry_other", name, str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def costs(name: str, few: Taken, many: Taken, direct: Taken) -> dict[str, float]:
    """The figures of one side, of streams of few, many and the usual number of chunks."""
    brief = median(few.thread)
    chunk = median([(one - brief.value) / (MANY_CHUNKS - FEW_CHUNKS) for one in many.thread])
    usual = median(direct.thread)
    return {
        f"{name}_call_us": usual.value,
        f"{name}_call_low_us": usual.low,
        f"{name}_call_high_us": usual.high,
        f"{name}_process_us": median(direct.process).value,
        f"{name}_brief_us": brief.value,
        f"{name}_brief_high_us": brief.high,
        f"{name}_chunk_us": chunk.value,
        f"{name}_chunk_high_us": chunk.high,
    }


def _measure(name: str, rounds: int) -> dict[str, Any]:
    taken: list[dict[str, Taken]] = []
    with instrumented(name) as sides:
        for chunks, calls, of_rounds in ((FEW_CHUNKS, 5, rounds), (MANY_CHUNKS, 1, rounds // 10), (CHUNKS, 1, rounds)):
            with stamped_client(openai.OpenAI, chunks) as client:
                bare, told = sides(client)
                taken.append(take(bare, {"told": told, "again": bare}, calls=calls, rounds=max(4, of_rounds)))
    few, many, direct = taken
    return {
        f"{name}_stock_total_us": median(direct["told"].base_thread).value,
        **costs(name, few["told"], many["told"], direct["told"]),
        f"{name}_none_again_us": median(direct["again"].thread).value,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))) + "\n")
