"""Which origins a pattern stands for."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.providers import ProviderFacts, facts_of, registered


def matches(pattern: str, url: str) -> bool:
    with registered(ProviderFacts(slug="matched"), origins=[pattern]):
        return facts_of(url).slug == "matched"


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        ("api.example.com", "https://api.example.com:443", True),
        ("api.example.com", "http://api.example.com:80", True),
        ("api.example.com", "https://API.Example.COM/v1/chat?x=1#y", True),
        ("api.example.com", "https://api.example.com.", True),
        ("api.example.com", "https://user:password@api.example.com", True),
        ("api.example.com:8443", "https://api.example.com:8443", True),
        ("https://api.example.com", "https://api.example.com:443", True),
        ("*.example.com", "https://a.b.example.com", True),
        ("http://[::1]:8000", "http://[0:0:0:0:0:0:0:1]:8000", True),
        ("[2001:DB8::1]", "https://[2001:db8::1]:443", True),
        ("bücher.example", "https://xn--bcher-kva.example", True),
        ("api.example.com", "https://api.example.com:8443", False),
        ("api.example.com", "http://api.example.com:443", False),
        ("api.example.com", "https://xapi.example.com", False),
        ("api.example.com", "https://api.example.com.evil.test", False),
        ("api.example.com", "https://api.example.com@evil.test", False),
        ("https://api.example.com", "http://api.example.com:443", False),
        ("*.example.com", "https://example.com", False),
        ("*.example.com", "https://evilexample.com", False),
        ("api.example.com", "wss://api.example.com", False),
        ("api.example.com", "https://api.example.com:99999", False),
    ],
)
def test_pattern_matches_its_origins_and_no_others(pattern: str, url: str, expected: bool) -> None:
    assert matches(pattern, url) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.*.example.com",
        "api.*.com",
        "ftp://example.com",
        "https://",
        "a b",
        "[::x]",
        "a:0",
        "a:70000",
        "*.[::1]",
    ],
)
def test_invalid_pattern_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must be like .* got '"):
        matches(text, "https://api.example.com")


@given(st.text(max_size=60))
def test_no_text_is_too_strange_to_be_looked_at(text: str) -> None:
    assert facts_of(text).slug
    assert facts_of(f"https://{text}").slug
