"""The JSON Schema Test Suite as jsonschema's own source distribution carries it, fetched through pip for one run."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

_DIALECTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_PATIENCE_S = 20


class Case(NamedTuple):
    """A schema of the suite."""

    draft: str
    schema: Any
    """It says itself of which draft it is, unless it is True or False."""
    valid: tuple[Any, ...]
    """The suite's own values that are valid for it."""


def suite() -> list[Case]:
    """Return the schemas of the suite, the optional parts included; none where pip cannot get it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = f"jsonschema=={version('jsonschema')}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "0"]
        command += ["--timeout", "5", "--no-deps", "--no-binary", ":all:", "--dest", name, wanted]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE_S)
            with tarfile.open(next(folder.glob("jsonschema-*.tar.gz"))) as archive:
                archive.extractall(folder, filter="data")
        except (subprocess.SubprocessError, OSError, StopIteration, tarfile.TarError):
            return []
        return list(_cases(next(folder.glob("jsonschema-*/json/tests"))))


def _cases(folder: Path) -> Iterator[Case]:
    for draft, dialect in _DIALECTS.items():
        for file in sorted((folder / draft).rglob("*.json")):
            for group in json.loads(file.read_text("utf-8")):
                schema = group["schema"]
                if isinstance(schema, dict):
                    schema = {"$schema": dialect, **schema}
                yield Case(draft, schema, tuple(test["data"] for test in group["tests"] if test["valid"]))
