"""Build the wheel and the source distribution twice, under different conditions, and compare them byte for byte.

    python -m scripts.wheel                 builds, compares, and leaves both in dist/
    python -m scripts.wheel --out FOLDER    leaves them elsewhere

The two differ in their folder, umask, time zone, locale and hash seed, and in the times and modes of the files that
they are built from. A third wheel is built from the source distribution, a fourth with another SOURCE_DATE_EPOCH.

Exit codes: 0 where all of it holds, 1 where something does not, 2 for input that cannot work.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.parser import BytesParser
from pathlib import Path

from scripts.audit._finding import Finding, judged
from scripts.environments import ROOT

PART = "wheel"
_LIMIT_S = 120.0
# What a package of Python code, tables, and pages that its commands write is made of.
_SUFFIXES = frozenset((".css", ".html", ".js", ".json", ".md", ".py", ".pyi", ".toml", ".typed"))
# The package, and the plugin of pytest beside it.
_CODE = ("fastlane", "fastlane_testing.py")
_METADATA = frozenset(("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"))
# 2 February 2022, 02:02:02 UTC: neither what the build takes where nothing is said, nor any time of a file.
_ANOTHER_TIME = (2022, 2, 2, 2, 2, 2)
_ANOTHER_EPOCH = "1643767322"


class BuildError(RuntimeError):
    """It cannot be built: the message says why."""


def sources() -> list[Path]:
    """Return the files that the repository is made of, relative to it: those of git, and new ones that it may take."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"which files belong to the repository is what git says, and it did not: {error}") from error
    names = [Path(name.decode()) for name in done.stdout.split(b"\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def _copied(names: Sequence[Path], where: Path, umask: int, time_s: int | None) -> None:
    """Copy files as somebody with that umask would have checked them out, at that time."""
    for name in names:
        original, copy = ROOT / name, where / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, copy)
        copy.chmod((0o777 if original.stat().st_mode & stat.S_IXUSR else 0o666) & ~umask)
        if time_s is not None:
            os.utime(copy, (time_s, time_s))
    for folder in [where, *(path for path in where.rglob("*") if path.is_dir())]:
        folder.chmod(0o777 & ~umask)


def _built(source: Path, out: Path, targets: Sequence[str], umask: int, variables: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), *(f"-t{target}" for target in targets)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOURCE_DATE", "PYTHON", "LC_"))}
    done = subprocess.run(
        command,
        cwd=source,
        env={**kept, **variables},
        umask=umask,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise BuildError("hatchling: " + "\n".join((done.stderr or done.stdout).splitlines()[-5:]))


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise BuildError(f"expected one {pattern} in {folder.name}, got {[path.name for path in found]}")
    return found[0]


def build(out: Path) -> tuple[Path, Path, list[Finding]]:
    """Build into a folder. Return the wheel, the source distribution, and what was found of both. Raises BuildError."""
    names = sources()
    with tempfile.TemporaryDirectory(prefix="fastlane-wheel-") as temporary:
        place = Path(temporary)
        here, there = place / "a", place / "another folder" / "with a longer näme"
        _copied(names, here, 0o022, None)
        _copied(list(reversed(names)), there, 0o077, 1_000_000_000)
        plain = {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"}
        other = {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4242"}
        both = ("wheel", "sdist")
        with ThreadPoolExecutor(2) as builders:
            first = builders.submit(_built, here, place / "1", both, 0o022, plain)
            second = builders.submit(_built, there, place / "2", both, 0o077, other)
            first.result(), second.result()
            sdist = _one(place / "1", "*.tar.gz")
            with tarfile.open(sdist) as archive:
                archive.extractall(place / "unpacked", filter="data")
            unpacked = _one(place / "unpacked", "*")
            third = builders.submit(_built, unpacked, place / "3", ("wheel",), 0o027, other)
            dated = {**plain, "SOURCE_DATE_EPOCH": _ANOTHER_EPOCH}
            fourth = builders.submit(_built, here, place / "4", ("wheel",), 0o022, dated)
            third.result(), fourth.result()
        wheels = [_one(place / str(number), "*.whl") for number in range(1, 5)]
        findings = [
            _same("two wheels of different conditions are the same bytes", wheels[0], wheels[1]),
            _same("so are two source distributions", sdist, _one(place / "2", "*.tar.gz")),
            _same("the wheel that is built from the source distribution is the same one", wheels[0], wheels[2]),
            _dated(wheels[0], wheels[3]),
            *_contents(wheels[0], names, (str(place), str(ROOT))),
        ]
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheels[0], out)), Path(shutil.copy(sdist, out)), findings


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _same(what: str, one: Path, other: Path) -> Finding:
    if digest(one) == digest(other):
        return Finding(PART, what, "holds", f"{one.stat().st_size:,} bytes, sha256 {digest(one)[:16]}…")
    return Finding(PART, what, "broken", "; ".join(_different(one, other)) or "the files within are the same")


def _members(path: Path) -> dict[str, tuple[object, ...]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {one.filename: (one.date_time, one.external_attr, wheel.read(one)) for one in wheel.infolist()}
    with tarfile.open(path) as archive:
        return {
            one.name: (one.mtime, one.mode, one.uid, one.gid, one.uname, one.gname, one.size)
            for one in archive.getmembers()
        }


def _different(one: Path, other: Path) -> Iterator[str]:
    ours, theirs = _members(one), _members(other)
    if list(ours) != list(theirs):
        yield f"other names, or in another order: {sorted(set(ours) ^ set(theirs))[:5]}"
    yield from (f"{name} is another" for name in ours if name in theirs and ours[name] != theirs[name])


def _dated(usual: Path, dated: Path) -> Finding:
    """Whether SOURCE_DATE_EPOCH dates what is in the wheel, and changes nothing else."""
    what = "SOURCE_DATE_EPOCH dates what is in the wheel, and changes nothing else"
    with zipfile.ZipFile(usual) as one, zipfile.ZipFile(dated) as other:
        wrong = [
            f"{info.filename} is of {info.date_time}" for info in other.infolist() if info.date_time != _ANOTHER_TIME
        ]
        wrong += [f"{name} is another" for name in one.namelist() if one.read(name) != other.read(name)]
    return judged(PART, what, wrong)


def _contents(path: Path, names: Sequence[Path], places: Sequence[str]) -> Iterator[Finding]:
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    (home,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    code = {name for name in files if name.split("/")[0] in _CODE}
    metadata = {name.removeprefix(f"{home}/") for name in files if name.startswith(f"{home}/")}
    expected = {name.as_posix() for name in names if name.parts[0] in _CODE}
    wrong = [f"{name} is not the package's" for name in sorted(files.keys() - code) if not name.startswith(f"{home}/")]
    wrong += [f"{name} is in the wheel and not in the repository" for name in sorted(code - expected)]
    wrong += [f"{name} is missing" for name in sorted(expected - code)]
    wrong += [f"{home}/{name}" for name in sorted(metadata ^ _METADATA)]
    wrong += [f"{name} is of no known kind" for name in sorted(code) if Path(name).suffix not in _SUFFIXES]
    yield judged(
        PART, "it holds the package, its licence and its metadata, and nothing else", wrong, f"{len(code)} files"
    )
    yield judged(
        PART,
        "types, facts of providers and tables are in it",
        [
            f"no {name}"
            for name in (
                "fastlane/py.typed",
                "fastlane/types/chat/__init__.pyi",
                "fastlane/knowledge/tokenizers.toml",
                "fastlane/providers/openai.toml",
            )
            if name not in files
        ],
    )
    yield judged(PART, "every file has the checksum that its record says", _unlike_record(files, home))
    yield judged(PART, "its metadata says what the project says", _unlike_project(files, home))
    told = [name for name, data in files.items() if any(place.encode() in data for place in places)]
    yield judged(PART, "no file names the folder that it was built in", told)


def _unlike_record(files: Mapping[str, bytes], home: str) -> Iterator[str]:
    listed = {row[0]: row[1:] for row in csv.reader(files[f"{home}/RECORD"].decode().splitlines())}
    for name, data in files.items():
        if name == f"{home}/RECORD":
            continue
        checksum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        if listed.get(name) != [f"sha256={checksum}", str(len(data))]:
            yield f"{name} is not as recorded"
    yield from (f"{name} is recorded and missing" for name in listed.keys() - files.keys())


def _unlike_project(files: Mapping[str, bytes], home: str) -> Iterator[str]:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = BytesParser().parsebytes(files[f"{home}/METADATA"])
    version = re.search(r'^__version__ = "(.+)"$', files["fastlane/_version.py"].decode(), re.MULTILINE)
    said = {
        "Name": project["name"],
        "Version": version[1] if version is not None else None,
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
    }
    yield from (f"{name} is {metadata[name]!r}" for name, value in said.items() if metadata[name] != value)
    if project["version"] != said["Version"]:
        yield f"the project is of version {project['version']} and the package of {said['Version']}"
    required = metadata.get_all("Requires-Dist", [])
    named = {re.split(r"[^\w.-]", line)[0].lower() for line in required if "extra ==" not in line}
    wanted = {re.split(r"[^\w.-]", line)[0].lower() for line in project["dependencies"]}
    yield from (f"the dependency {name} is on one side only" for name in sorted(named ^ wanted))
    if sorted(project["optional-dependencies"]) != sorted(metadata.get_all("Provides-Extra", [])):
        yield "its extras are others"


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
