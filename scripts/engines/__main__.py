"""Bench real engines on this machine: their own servers, a model of GPT-2's shape, the lengths of a published report.

    python -m scripts.engines                      both engines, one after the other, and a report for each
    python -m scripts.engines transformers         one of them
    python -m scripts.engines --install            installs what they need, and makes the model, and nothing else
    python -m scripts.engines llama_cpp -- --users 1,2     what follows `--` goes to `fastlane bench run`

The first run installs both engines: minutes, and 1.5 GB. Reports and raw records go to bench-results/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from scripts.distribution import UnavailableError
from scripts.engines._servers import ENGINES, LlamaCpp, Transformers, model, model_file
from scripts.environments import ROOT

# 128 tokens in and 64 out, 512 and 128, 1,024 and 256: one request for warm-up, and of each arm eight that count. A
# median has an interval from six on; the report that the lengths come from has five.
_WORKLOAD: Final = (
    *("--workload", "cpu-small", "--kind", "lengths", "--arms", "baseline,fastlane", "--no-again"),
    *("--conversations", "8", "--passes", "1", "--budget-s", "0"),
)
# Of a report of January 2026 on GPT-2 on a CPU.
_TARGETS: Final = (
    "ttft_mean @ short < 2500 ms",
    "ttft_mean @ medium < 5000 ms",
    "ttft_mean @ long < 8000 ms",
    "decode_speed_mean > 20 tokens/s",
    "ttft_cv < 20 %",
)


def _bench(server: Transformers | LlamaCpp, further: Sequence[str]) -> int:
    """Bench one engine while it runs, and return the exit code."""
    place = ROOT / "bench-results" / f"local-{server.name}"
    print(f"starting {server.name}", file=sys.stderr, flush=True)
    with server:
        command = [
            *(
                sys.executable,
                "-m",
                "fastlane",
                "bench",
                "run",
                "--base-url",
                f"{server.url}/v1",
                "--model",
                server.model,
            ),
            *("--api-key-env", "FASTLANE_ENGINE_KEY", "--limit-field", server.limit_field, *_WORKLOAD),
            *(part for target in _TARGETS for part in ("--target", target)),
            *("--folder", str(place), "-o", f"{place}.html", "-o", f"{place}.md", "--full", *further),
        ]
        done = subprocess.run(command, env={**os.environ, "FASTLANE_ENGINE_KEY": "none"}, check=False)
    print(f"reports: {place.relative_to(ROOT)}.html, .md; raw records in {place.relative_to(ROOT)}/", file=sys.stderr)
    return done.returncode


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    own, further = (
        (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :])
        if "--" in arguments
        else (arguments, ())
    )
    unknown = [name for name in own if name != "--install" and name not in ENGINES]
    if unknown:
        print(f"expected {', '.join(ENGINES)} or --install, got {unknown[0]!r}\n\n{__doc__}", file=sys.stderr)
        return 2
    try:
        if "--install" in own:
            for engine in ENGINES.values():
                engine()
            print(model(), model_file(), sep="\n")
            return 0
        codes = [_bench(ENGINES[name](), further) for name in own or ENGINES]
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
