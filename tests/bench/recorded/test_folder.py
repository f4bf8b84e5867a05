from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.bench import read_run
from tests.bench.recorded_runs import a_run
from tests.bench.reports.made import bench, save

RUN = a_run(pairs=3, with_log=True, workload_notes=("größer",))


def test_written_run_reads_back_equal_and_stays_alone(tmp_path: Path) -> None:
    found = read_run(save(RUN, tmp_path / "new" / "run"))

    assert [replace(sample, token_ns=tuple(sample.token_ns)) for sample in found.samples] == list(RUN.samples)
    assert (found.header, found.vitals, found.log, found.ended) == (RUN.header, RUN.vitals, RUN.log, RUN.ended)
    with pytest.raises(ConfigurationError, match="holds a run already"):
        save(RUN, tmp_path / "new" / "run")


@pytest.mark.parametrize("cut", range(1, 60, 5))
def test_last_line_that_was_torn_anywhere_is_left_out(tmp_path: Path, cut: int) -> None:
    records = save(RUN, tmp_path) / "records.jsonl"
    kept = records.read_bytes()[: -61 * cut]
    records.write_bytes(kept)

    read = read_run(tmp_path).samples

    assert [sample.tag for sample in read] == [sample.tag for sample in RUN.samples[: len(read)]]
    assert len(read) == kept.count(b"\n") + (kept[-2:] == b"}}")


def test_line_in_the_middle_that_is_no_record_is_named(tmp_path: Path) -> None:
    records = save(RUN, tmp_path) / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join([lines[0], "what is this\n", *lines[1:]]))

    with pytest.raises(ConfigurationError, match=r"records\.jsonl, line 2: not valid JSON"):
        read_run(tmp_path)


def test_killed_run_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    """A killed process leaves no end, next to no account of the provider, half a block, and half a line."""
    folder = save(RUN, tmp_path)
    lines = (folder / "records.jsonl").read_text().splitlines()[:-2]
    (folder / "records.jsonl").write_text("\n".join([*lines, lines[-1][:40]]))
    logged = (folder / "server.jsonl").read_text().splitlines()[:5]
    (folder / "server.jsonl").write_text("".join(f"{line}\n" for line in logged))
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "ended": None}))

    cut = read_run(folder)

    assert (cut.ended, len(cut.samples), len(cut.log or ())) == ("interrupted", len(lines), 5)
    assert cut.unlogged == tuple(sample.tag for sample in RUN.samples[5 : len(lines)])


def test_unreadable_run_folder_is_refused(tmp_path: Path) -> None:
    for text, expected in (
        (None, "holds no run: cannot read"),
        ("[]", "is no run's"),
        (json.dumps({"schema": 99}), "has schema 99, and this version of fastlane reads schema 3"),
    ):
        if text is not None:
            (tmp_path / "run.json").write_text(text)
        result = bench("report", tmp_path)
        assert result.exit_code == 2
        assert expected in " ".join(result.stderr.split())
