"""Build the wheel and the source distribution twice, under different conditions, and compare them byte for byte.

    python -m scripts.wheel                 builds, compares, and leaves both in dist/
    python -m scripts.wheel --out FOLDER    leaves them elsewhere

The two differ in their folder, umask, time zone, locale and hash seed, and in the times and modes of the files that
they are built from. A third wheel is built from the source distribution.

Exit codes: 0 where all of it holds, 1 where something does not, 2 for input that cannot work.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.environments import ROOT

PART = "wheel"
# The package, and the plugin of pytest beside it.
_CODE = ("fastlane", "fastlane_testing.py")
_METADATA = frozenset(("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"))


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check."""

    part: str
    """What it belongs to: "advisories", "wheel", "import", "example"."""
    what: str
    """What is to hold, as a sentence."""
    outcome: str
    """"holds", "broken" or "skipped"."""
    said: str = ""
    """What was found; where it is skipped, why."""


def judged(part: str, what: str, wrong: Iterable[str], right: str = "") -> Finding:
    """Return a finding that holds where nothing is wrong, and else names what is: `right` is said where it holds."""
    problems = list(wrong)
    more = f", and {len(problems) - 8} more" if len(problems) > 8 else ""
    return Finding(part, what, "broken" if problems else "holds", "; ".join(problems[:8]) + more or right)


class BuildError(RuntimeError):
    """It cannot be built: the message says why."""


def sources() -> list[Path]:
    """Return the files that the repository is made of, relative to it: those of git, and new ones that it may take."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"git does not name the repository's files: {done.stderr.strip()}")
    names = [Path(name) for name in sorted(set(done.stdout.split("\0")) - {""})]
    return [name for name in names if (ROOT / name).is_file()]


def _copy(names: Sequence[Path], where: Path, umask: int, time_s: int | None) -> None:
    """Copy files as somebody with that umask would have checked them out, at that time."""
    for name in names:
        original, copy = ROOT / name, where / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, copy)
        copy.chmod((0o777 if original.stat().st_mode & stat.S_IXUSR else 0o666) & ~umask)
        if time_s is not None:
            os.utime(copy, (time_s, time_s))


def _run_hatchling(source: Path, out: Path, targets: str, umask: int, variables: Mapping[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-d",
        str(out),
        *(f"-t{target}" for target in targets.split()),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOURCE_DATE", "PYTHON", "LC_"))}
    here = {"cwd": source, "env": {**kept, **variables}, "umask": umask}
    done = subprocess.run(command, **here, capture_output=True, text=True, timeout=120.0, check=False)
    if done.returncode:
        raise BuildError("hatchling: " + "\n".join((done.stderr or done.stdout).splitlines()[-5:]))


def build(out: Path) -> tuple[Path, Path, list[Finding]]:
    """Build into a folder. Return the wheel, the source distribution, and what was found of both. Raises BuildError."""
    names = sources()
    with tempfile.TemporaryDirectory(prefix="fastlane-wheel-") as temporary:
        place = Path(temporary)
        here, there = place / "a", place / "another folder" / "with a longer näme"
        _copy(names, here, 0o022, None)
        _copy(list(reversed(names)), there, 0o077, 1_000_000_000)
        other = {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4242"}
        _run_hatchling(here, place / "1", "wheel sdist", 0o022, {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"})
        _run_hatchling(there, place / "2", "wheel sdist", 0o077, other)
        sdists = [next((place / number).glob("*.tar.gz")) for number in "12"]
        with tarfile.open(sdists[0]) as archive:
            archive.extractall(place / "unpacked", filter="data")
        _run_hatchling(next((place / "unpacked").iterdir()), place / "3", "wheel", 0o027, other)
        wheels = [next((place / number).glob("*.whl")) for number in "123"]
        findings = [
            same("two wheels of different conditions are the same bytes", wheels[0], wheels[1]),
            same("so are two source distributions", *sdists),
            same("the wheel that is built from the source distribution is the same one", wheels[0], wheels[2]),
            *contents(wheels[0], names, (str(place), str(ROOT))),
        ]
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheels[0], out)), Path(shutil.copy(sdists[0], out)), findings


def same(what: str, one: Path, other: Path) -> Finding:
    """Return whether two archives are the same bytes; the files within that differ where they are wheels."""
    if one.read_bytes() == other.read_bytes():
        return Finding(PART, what, "holds", f"{one.stat().st_size:,} bytes")
    if one.suffix != ".whl":
        return Finding(PART, what, "broken", "they differ")
    with zipfile.ZipFile(one) as ours, zipfile.ZipFile(other) as theirs:
        first, second = (
            {each.filename: (each.date_time, each.CRC) for each in wheel.infolist()} for wheel in (ours, theirs)
        )
    different = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return judged(PART, what, different or ["the files within are in another order, or of other modes"])


def contents(path: Path, names: Sequence[Path], places: Sequence[str]) -> Iterator[Finding]:
    """Return what is wrong with the files in a wheel of these sources, which was built in these places."""
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    (home,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    expected = {name.as_posix() for name in names if name.parts[0] in _CODE} | {f"{home}/{name}" for name in _METADATA}
    wrong = [f"{name} does not belong in it" for name in sorted(files.keys() - expected)]
    wrong += [f"{name} is missing" for name in sorted(expected - files.keys())]
    yield judged(
        PART, "it holds the package, its licence and its metadata, and nothing else", wrong, f"{len(files)} files"
    )
    built_in = [name for name, data in files.items() if any(place.encode() in data for place in places)]
    yield judged(PART, "no file names the folder that it was built in", built_in)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.wheel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder that they are left in")
    asked = parser.parse_args(arguments)
    try:
        wheel, sdist, findings = build(asked.out)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in findings:
        print(f"{finding.outcome:7} {finding.what}{f' ({finding.said})' if finding.said else ''}")
    print(wheel, sdist, sep="\n")
    return int(any(finding.outcome == "broken" for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
