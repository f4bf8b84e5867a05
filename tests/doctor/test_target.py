from __future__ import annotations

import pytest

from fastlane import ConfigurationError
from fastlane.doctor._session import target_of


@pytest.mark.parametrize(
    ("url", "base_url", "origin"),
    [
        ("https://a.example/v1/", "https://a.example/v1", "https://a.example:443"),
        ("https://A.example", "https://a.example", "https://a.example:443"),
        ("http://h:8000/v1", "http://h:8000/v1", "http://h:8000"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", "http://[::1]:8000"),
        ("https://h:443/x/y", "https://h:443/x/y", "https://h:443"),
    ],
)
def test_target_has_base_url_and_origin(url: str, base_url: str, origin: str) -> None:
    target = target_of(url)

    assert (target.base_url, target.origin) == (base_url, origin)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("a.example/v1", "such as https://api.example.com/v1, got "),
        ("ftp://a.example", "such as https://api.example.com/v1, got "),
        ("https://", "such as https://api.example.com/v1, got "),
        ("https://a.example:x/v1", "such as https://api.example.com/v1, got 'https://a.example:x/v1'"),
        ("https://name:word@a.example/v1", "must not hold a name or a password"),
        ("https://a.example/v1?key=hidden", "without what follows a '?'"),
        ("https://a.example/v1/chat/completions", "without '/chat/completions' at its end"),
    ],
)
def test_unusable_url_is_explained_without_secrets(url: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        target_of(url)

    assert expected in str(raised.value)
    assert "hidden" not in str(raised.value)
    assert "word@" not in str(raised.value)
