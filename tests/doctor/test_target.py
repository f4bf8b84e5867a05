from __future__ import annotations

import pytest

from fastlane import ConfigurationError
from fastlane.doctor.target import target_of


@pytest.mark.parametrize(
    ("url", "base_url", "origin", "authority", "path"),
    [
        ("https://a.example/v1/", "https://a.example/v1", "https://a.example:443", "a.example", "/v1"),
        ("https://A.example", "https://a.example", "https://a.example:443", "a.example", ""),
        ("http://h:8000/v1", "http://h:8000/v1", "http://h:8000", "h:8000", "/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", "http://[::1]:8000", "[::1]:8000", "/v1"),
        ("https://h:443/x/y", "https://h:443/x/y", "https://h:443", "h", "/x/y"),
    ],
)
def test_a_url_is_taken_apart(url: str, base_url: str, origin: str, authority: str, path: str) -> None:
    target = target_of(url)

    assert (target.base_url, target.origin, target.authority, target.path) == (base_url, origin, authority, path)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("a.example/v1", "begin with https:// or http://"),
        ("ftp://a.example", "begin with https:// or http://"),
        ("https://", "begin with https:// or http://"),
        ("https://a.example:x/v1", "cannot be read"),
        ("https://name:word@a.example/v1", "must not hold a name or a password"),
        ("https://a.example/v1?key=hidden", "without what follows a '?'"),
        ("https://a.example/v1/chat/completions", "without '/chat/completions' at its end"),
    ],
)
def test_a_url_that_cannot_work_is_explained_without_what_may_be_secret(url: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        target_of(url)

    assert expected in str(raised.value)
    assert "hidden" not in str(raised.value)
    assert "word@" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.2", True),
        ("http://[::1]", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_it_is_known_which_hosts_are_this_machine(url: str, local: bool) -> None:
    assert target_of(url).is_local is local
