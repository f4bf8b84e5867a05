"""Other load generators against a truth server: each run as its own command, and read from what it writes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.peers import python
from tests.truth import ClientTimes, MeasurementErrors, ServerPace, TruthLog, TruthServer, score

_LIMIT_S = 170.0
# Their own first requests open connections: they are left out for every tool.
_UNCOUNTED_ROUNDS = 1


class PeerFailedError(RuntimeError):
    """A peer is installed and gave no figures: the message holds its last words."""


def _run(command: list[str], directory: Path, **variables: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailedError(f"{command[0]} has not ended within {_LIMIT_S:.0f} s") from error
    if done.returncode:
        raise PeerFailedError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout


def _guidellm(
    interpreter: str, truth: TruthServer, lanes: int, requests: int, directory: Path
) -> tuple[list[ClientTimes], TruthLog]:
    count = lanes * (requests + _UNCOUNTED_ROUNDS)
    prompts, written = directory / "prompts.jsonl", directory / "guidellm.json"
    prompts.write_text("".join(json.dumps({"prompt": f"Is water wet? {number}"}) + "\n" for number in range(count)))
    _run(
        [
            str(Path(interpreter).with_name("guidellm")),
            *("run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={truth.base_url.removesuffix('/v1')},model=truth"),
            *("--profile", f"kind=concurrent,streams={lanes}"),
            *("--constraint", f"kind=max_requests,count={count}"),
            *("--data", f"kind=json_file,path={prompts}"),
            *("--output", f"kind=json,path={written}"),
        ],
        directory,
        HF_HUB_OFFLINE="1",
    )
    told = [each for run in json.loads(written.read_text())["benchmarks"] for each in run["requests"]["successful"]]
    told.sort(key=lambda each: float(each["request_start_time"]))
    readings = [
        ClientTimes(
            tag=each["response_id"],
            time_to_first_token_s=each["time_to_first_token_ms"] / 1e3,
            time_per_output_token_s=each["inter_token_latency_ms"] / 1e3,
            chunks=each["output_tokens"],
        )
        for each in told[lanes * _UNCOUNTED_ROUNDS :]
    ]
    # It tells no tag of a request, but the id of its answer.
    log = truth.log()
    answers = tuple(dataclasses.replace(answer, tag=answer.answer_id) for answer in log.answers)
    return readings, dataclasses.replace(log, answers=answers)


def _tokenizer(directory: Path) -> Path:
    """A tokenizer of single characters: the tool wants one on disk, for the prompts that it makes up."""
    home = directory / "tokenizer"
    home.mkdir()
    vocabulary = {character: at for at, character in enumerate(["<unk>", *map(chr, range(32, 127))])}
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    unknown = {"id": 0, "content": "<unk>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    whole = {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")),
        "added_tokens": [unknown | flags],
        "pre_tokenizer": split,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    (home / "tokenizer.json").write_text(json.dumps(whole))
    special = dict.fromkeys(("unk_token", "eos_token", "bos_token"), "<unk>")
    (home / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
    (home / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return home


def _aiperf(
    interpreter: str, truth: TruthServer, lanes: int, requests: int, directory: Path
) -> tuple[list[ClientTimes], TruthLog]:
    written = directory / "written"
    _run(
        [
            str(Path(interpreter).with_name("aiperf")),
            *("profile", "--model", "truth", "--url", truth.base_url.removesuffix("/v1")),
            *("--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--ui", "none"),
            *("--concurrency", str(lanes), "--request-count", str(lanes * requests)),
            *("--warmup-request-count", str(lanes * _UNCOUNTED_ROUNDS), "--random-seed", "1"),
            *("--tokenizer", str(_tokenizer(directory)), "--synthetic-input-tokens-mean", "20"),
            *("--export-level", "records", "--artifact-dir", str(written)),
        ],
        directory,
    )
    readings = []
    for line in (written / "profile_export.jsonl").read_text().splitlines():
        told: dict[str, Any] = json.loads(line)
        metrics = {name: metric["value"] for name, metric in told["metrics"].items()}
        if told["metadata"]["benchmark_phase"] != "warmup" and "time_to_first_token" in metrics:
            each_ms = metrics.get("inter_token_latency")
            readings.append(
                ClientTimes(
                    tag=told["metadata"]["x_request_id"],
                    time_to_first_token_s=metrics["time_to_first_token"] / 1e3,
                    time_per_output_token_s=None if each_ms is None else each_ms / 1e3,
                    chunks=len(metrics.get("inter_chunk_latency", ())) + 1,
                )
            )
    return readings, truth.log()


_TOOLS: dict[str, Callable[[str, TruthServer, int, int, Path], tuple[list[ClientTimes], TruthLog]]] = {
    "guidellm": _guidellm,
    "aiperf": _aiperf,
}
PEERS = tuple(_TOOLS)


def peer_score(
    name: str, truth: TruthServer, pace: ServerPace, *, lanes: int, requests: int
) -> MeasurementErrors | None:
    """Run a peer against a truth server; None where it is not installed. Raises PeerFailedError."""
    interpreter = python(name)
    if interpreter is None:
        return None
    truth.clear()
    truth.answer_like(pace)
    with tempfile.TemporaryDirectory() as place:
        readings, log = _TOOLS[name](interpreter, truth, lanes, requests, Path(place))
    if not readings:
        raise PeerFailedError(f"{name} wrote no requests")
    return score(readings, log)
