"""Build the wheel and the source distribution, and build both again from the latter: they must be the same bytes.

    python -m scripts.wheel                 builds, compares, and leaves both in dist/
    python -m scripts.wheel --out FOLDER    leaves them elsewhere

The second build has another folder, umask, time zone, locale and hash seed, and its files have other times and modes.

Exit codes: 0 where all of it holds, 1 where something does not, 2 for input that cannot work.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scripts.environments import ROOT

PART = "wheel"
# The package, and beside it the command `fastlane` and the plugin of pytest.
_CODE = ("fastlane", "fastlane_run.py", "fastlane_testing.py")
_METADATA = frozenset(("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"))


class Finding(NamedTuple):
    """What must hold, as a sentence; whether it "holds", is "broken" or was "skipped"; and what was found, or why."""

    part: str
    what: str
    outcome: str
    details: str = ""


def judged(part: str, what: str, wrong: Iterable[str], right: str = "") -> Finding:
    """Return a finding that is broken if `wrong` names a problem, and says `right` otherwise."""
    problems = list(wrong)
    more = f", and {len(problems) - 8} more" if len(problems) > 8 else ""
    return Finding(part, what, "broken" if problems else "holds", "; ".join(problems[:8]) + more or right)


def report(findings: Sequence[Finding]) -> int:
    """Print findings, and return the exit code: 1 if something is broken."""
    for one in findings:
        print(f"{one.part:10} {one.outcome:7} {one.what}{f' ({one.details})' if one.details else ''}")
    counts = Counter(one.outcome for one in findings)
    print(f"{counts['holds']} hold, {counts['broken']} broken, {counts['skipped']} skipped")
    return int(counts["broken"] > 0)


class BuildError(RuntimeError):
    """The package cannot be built: the message says why."""


def sources() -> list[Path]:
    """Return the repository's files, relative to it: those in git, and new ones that are not ignored."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"git cannot list the repository's files: {done.stderr.strip()}")
    return [Path(name) for name in sorted(set(done.stdout.split("\0")) - {""}) if (ROOT / name).is_file()]


def _run_hatchling(source: Path, out: Path, umask: int, variables: Mapping[str, str]) -> tuple[Path, Path]:
    """Build into `out`, and return the wheel and the source distribution."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOURCE_DATE", "PYTHON", "LC_"))}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    here: dict[str, Any] = {"cwd": source, "env": {**kept, **variables}, "umask": umask}
    done = subprocess.run(command, **here, capture_output=True, text=True, timeout=120.0, check=False)
    if done.returncode:
        raise BuildError("hatchling: " + "\n".join((done.stderr or done.stdout).splitlines()[-5:]))
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def build(out: Path) -> tuple[Path, Path, list[Finding]]:
    """Build into a folder; return the wheel, the source distribution and the findings. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="fastlane-wheel-") as temporary:
        place, there = Path(temporary), Path(temporary, "another folder", "with a longer näme")
        wheel, sdist = _run_hatchling(ROOT, place / "1", 0o022, {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"})
        with tarfile.open(sdist) as archive:
            archive.extractall(there, filter="data")
        (unpacked,) = there.iterdir()
        (unpacked / "PKG-INFO").unlink()  # hatchling adds another one
        for path in unpacked.rglob("*"):
            path.chmod(path.stat().st_mode & ~0o077)
            os.utime(path, (1_000_000_000, 1_000_000_000))
        other = {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4242"}
        wheel_again, sdist_again = _run_hatchling(unpacked, place / "2", 0o077, other)
        findings = [
            same("two wheels of different conditions are the same bytes", wheel, wheel_again),
            same("so are two source distributions", sdist, sdist_again),
            *contents(wheel, sources(), (str(place), str(ROOT))),
        ]
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out)), Path(shutil.copy(sdist, out)), findings


def same(what: str, one: Path, other: Path) -> Finding:
    """Compare the bytes of two archives, and name the files that differ in two wheels."""
    if one.read_bytes() == other.read_bytes():
        return Finding(PART, what, "holds", f"{one.stat().st_size:,} bytes")
    if one.suffix != ".whl":
        return Finding(PART, what, "broken", "they differ")
    first, second = (
        {(each.filename, each.date_time, each.CRC) for each in zipfile.ZipFile(wheel).infolist()}
        for wheel in (one, other)
    )
    different = sorted({name for name, *_ in first ^ second})
    return judged(PART, what, different or ["the files within are in another order, or of other modes"])


def contents(path: Path, names: Sequence[Path], forbidden: Sequence[str]) -> Iterator[Finding]:
    """Check the files in a wheel against these sources, and for the names of the folders that it was built in."""
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    (home,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    expected = {name.as_posix() for name in names if name.parts[0] in _CODE} | {f"{home}/{name}" for name in _METADATA}
    wrong = [f"{name} does not belong in it" for name in sorted(files.keys() - expected)]
    wrong += [f"{name} is missing" for name in sorted(expected - files.keys())]
    yield judged(
        PART, "it holds the package, its licence and its metadata, and nothing else", wrong, f"{len(files)} files"
    )
    built_in = [name for name, data in files.items() if any(unwanted.encode() in data for unwanted in forbidden)]
    yield judged(PART, "no file names the folder that it was built in", built_in)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.wheel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder that they are left in")
    try:
        wheel, sdist, findings = build(parser.parse_args(arguments).out)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    print(wheel, sdist, sep="\n")
    return report(findings)


if __name__ == "__main__":
    sys.exit(main())
