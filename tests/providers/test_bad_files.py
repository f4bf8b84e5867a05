"""A file that cannot be used is refused with its name, the key, what was expected and what came."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.providers import load, registered

WHERE = 'source = "https://docs.example.com"\nchecked = 2026-11-22\nevidence = "documented"\n'

BAD = {
    "unknown key": ("sandwich = 1", "sandwich: unknown key, got 1"),
    "unknown key of an endpoint": (
        f'[encodings."/responses"]\nvalue = ["json"]\nunit = 2\n{WHERE}',
        "encodings./responses.unit: unknown key, got 2",
    ),
    "missing source": (
        '[http2]\nvalue = true\nchecked = 2026-11-22\nevidence = "documented"',
        "http2: expected a source: .*, got dict",
    ),
    "missing date": (
        '[http2]\nvalue = true\nsource = "https://docs.example.com"\nevidence = "documented"',
        "http2.checked: expected this key, got none",
    ),
    "missing value": (f"[http2]\n{WHERE}", 'http2: expected a value, or evidence = "not found", got dict'),
    "value together with not found": (
        '[http2]\nvalue = true\nchecked = 2026-11-22\nevidence = "not found"\nnote = "Asked."',
        'http2: expected no value, because evidence = "not found"',
    ),
    "not found without a note": (
        '[http2]\nchecked = 2026-11-22\nevidence = "not found"',
        "http2: expected a note that says what was looked for",
    ),
    "wrong type": (
        f'[cache.minimum_tokens]\nvalue = "1024"\n{WHERE}',
        "cache.minimum_tokens.value: expected a valid integer, got '1024'",
    ),
    "number where true or false is meant": (
        f"[http2]\nvalue = 1\n{WHERE}",
        "http2.value: expected a valid boolean, got 1",
    ),
    "infinity": (
        f"[cache.lifetime_s]\nvalue = inf\n{WHERE}",
        "cache.lifetime_s.value: expected a finite number, got inf",
    ),
    "value where a table is meant": ("cache = 3", "cache: .*Cache, got 3"),
    "bad date": (
        '[http2]\nvalue = true\nsource = "https://docs.example.com"\nevidence = "documented"\nchecked = "yesterday"',
        "http2.checked: expected a valid date, got 'yesterday'",
    ),
    "unknown form": (
        f'[encodings."/responses"]\nvalue = ["json", "zstd"]\n{WHERE}',
        "encodings./responses.value.1: expected 'json', 'json\\+gzip', 'msgpack' or 'msgpack\\+gzip', got 'zstd'",
    ),
    "forms without JSON": (
        f'[encodings."/responses"]\nvalue = ["msgpack"]\n{WHERE}',
        'encodings./responses.value: expected "json" among the forms',
    ),
    "endpoint with the base URL's path": (
        f'[encodings."/v1/chat/completions"]\nvalue = ["json"]\n{WHERE}',
        'encodings./v1/chat/completions: expected a path below the base URL, such as "/chat/completions", without the',
    ),
    "source that is no address": (
        '[http2]\nvalue = true\nsource = "the docs"\nevidence = "documented"\nchecked = 2026-11-22',
        "http2.source: expected '.https.*, got 'the docs'",
    ),
    "parameter of no meaning": (
        f"[parameters.x]\nvalue = 1.5\n{WHERE}",
        "parameters.x.value.bool: expected a valid boolean, got 1.5",
    ),
    "no TOML": ("= 1", "expected TOML, got something else: .*line 1"),
    "more digits than Python reads": (f"http2 = {'9' * 4_400}", "expected TOML, got something else: .*digits"),
    "lists nested deeply": (f"http2 = {'[' * 5_000}", "expected TOML, got something else"),
    "tables nested deeply": (f"http2.{'a.' * 3_000}b = 1", "expected a source|http2.a: unknown key, got dict"),
    "long key": (f"{'x' * 999} = 1", f"toml: {'x' * 60}: unknown key, got 1"),
    "key of two lines": ('"a\\nb" = 1', r"toml: 'a\\nb': unknown key"),
    "long value": (f'http2 = "{"x" * 999}"', f"got '{'x' * 59}$"),
}


@pytest.mark.parametrize(("written", "said"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said(written: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(written)

    with pytest.raises(ConfigurationError, match=said) as refused:
        load(file)

    assert all(line.startswith(f"{file}: ") for line in str(refused.value).splitlines())
    with pytest.raises(ConfigurationError, match=said), registered(file):
        pass


def test_everything_that_is_wrong_is_said_at_once_up_to_a_point(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("\n".join(f"key_{number} = 1" for number in range(8)))

    with pytest.raises(ConfigurationError) as refused:
        load(file)

    lines = str(refused.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["key_0", "key_1", "key_2", "key_3", "key_4", "3 more"]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_bytes(b'name = "\xff"')

    with pytest.raises(ConfigurationError, match="expected TOML, got something else"):
        load(file)


def test_a_path_that_can_be_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected a TOML file"):
        load("fac\0ts.toml")
