from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.bench.recorded import (
    ArmInfo,
    Cell,
    Header,
    RecordedRun,
    RunWriter,
    Sample,
    Vitals,
    read_run,
    see_writable,
)

HEADER = Header(
    name="bench",
    provider="a provider",
    model="model",
    embedded=False,
    arms=(
        ArmInfo(name="baseline", description="openai.OpenAI()", role="reference"),
        ArmInfo(name="fastlane", description="fastlane.OpenAI()", plays=("Connection()",)),
    ),
    cells=(Cell(name="talks, 1 user", workload="talks", users=1),),
    metrics=("time_to_first_token",),
    workload="talks",
    workload_notes=("nothing was changed",),
    settings={"seed": 0},
    started_at="2026-11-22T16:00:00+00:00",
)
VITALS = Vitals(cell="talks, 1 user", arm="fastlane", duration_s=2.0, cpu_s=0.5)


def write(recorded: RecordedRun, folder: Path) -> None:
    with RunWriter(folder) as writer:
        writer.begin(recorded.header)
        for sample in recorded.samples:
            writer.sample(sample)
        for vitals in recorded.vitals:
            writer.vitals(vitals)
        writer.log(recorded.log or ())
        writer.end(recorded.header, recorded.ended)


def sample(arm: str, block: int, *, at: int = 0, tag: str | None = None) -> Sample:
    return Sample(
        arm=arm,
        tag=tag or f"{arm}/{block}",
        cell="talks, 1 user",
        lane=0,
        block=block,
        conversation="größer",
        turn=1,
        issued_ns=at,
        token_ns=array("q", [at + 5, at + 7]),
        ended_ns=at + 1_000_000_000,
        call={"attempts": [{"request_body_bytes": 7}]},
    )


WHOLE = RecordedRun(
    header=HEADER,
    samples=tuple(
        sample(arm, block, at=block * 2_000_000_000) for block in range(3) for arm in ("baseline", "fastlane")
    ),
    vitals=(VITALS,),
    duration_s=5.0,
    ended="finished",
)


def test_written_run_reads_back_equal(tmp_path: Path) -> None:
    write(WHOLE, tmp_path / "new" / "run")

    assert read_run(tmp_path / "new" / "run") == WHOLE


def test_folder_holds_one_run(tmp_path: Path) -> None:
    write(WHOLE, tmp_path)

    with pytest.raises(ConfigurationError, match="holds a run already"):
        write(WHOLE, tmp_path)


@pytest.mark.parametrize("cut", range(1, 60))
def test_last_line_that_was_torn_anywhere_is_left_out(tmp_path: Path, cut: int) -> None:
    write(WHOLE, tmp_path)
    records = tmp_path / "records.jsonl"
    whole = records.read_bytes()
    records.write_bytes(whole[: -7 * cut])

    read = read_run(tmp_path).samples

    assert read == WHOLE.samples[: len(read)]
    assert len(read) == whole[: -7 * cut].count(b"\n") + (whole[: -7 * cut][-1:] == b"}")


def test_line_in_the_middle_that_is_no_record_is_named(tmp_path: Path) -> None:
    write(WHOLE, tmp_path)
    records = tmp_path / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join([lines[0], "what is this\n", *lines[1:]]))

    with pytest.raises(ConfigurationError, match=r"records\.jsonl, line 2: not valid JSON"):
        read_run(tmp_path)


def test_run_without_an_end_was_interrupted(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as writer:
        writer.begin(HEADER)
        writer.sample(WHOLE.samples[0])

        kept = read_run(tmp_path)

    assert kept.ended == "interrupted"
    assert kept.samples == WHOLE.samples[:1]


def test_unreadable_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no run: cannot read"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="is no run's"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(ConfigurationError, match="has schema 99, and this version of fastlane reads schema 3"):
        read_run(tmp_path)
    with pytest.raises(ConfigurationError, match="needs a folder that can be written to"):
        see_writable(tmp_path / "run.json", "a run")
