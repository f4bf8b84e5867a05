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
    ("pattern", "url"),
    [
        ("api.example.com", "https://api.example.com:443"),
        ("api.example.com", "https://api.example.com"),
        ("api.example.com", "http://api.example.com:80"),
        ("api.example.com", "https://API.Example.COM/v1/chat?x=1#y"),
        ("API.example.com", "HTTPS://api.example.com"),
        ("api.example.com", "https://api.example.com."),
        ("api.example.com", "https://user:password@api.example.com"),
        ("api.example.com:8443", "https://api.example.com:8443"),
        ("https://api.example.com", "https://api.example.com:443"),
        ("*.example.com", "https://a.example.com"),
        ("*.example.com", "https://a.b.example.com"),
        ("https://*.example.com:8443", "https://a.example.com:8443"),
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost", "http://localhost:80"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "http://[0:0:0:0:0:0:0:1]:8000"),
        ("[2001:DB8::1]", "https://[2001:db8::1]:443"),
        ("bücher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_pattern_matches_its_origins(pattern: str, url: str) -> None:
    assert matches(pattern, url)


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("api.example.com", "https://api.example.com:8443"),
        ("api.example.com", "http://api.example.com:443"),
        ("api.example.com", "https://xapi.example.com"),
        ("api.example.com", "https://api.example.com.evil.test"),
        ("api.example.com", "https://evil.test/api.example.com"),
        ("api.example.com", "https://api.example.com@evil.test"),
        ("https://api.example.com", "http://api.example.com:443"),
        ("*.example.com", "https://example.com"),
        ("*.example.com", "https://evilexample.com"),
        ("*.example.com", "https://a.example.com:8443"),
        ("http://localhost:8000", "http://localhost:8001"),
        ("http://[::1]:8000", "http://[::2]:8000"),
        ("api.example.com", "wss://api.example.com"),
        ("api.example.com", "https://api.example.com:99999"),
        ("api.example.com", "api.example.com"),
        ("api.example.com", "nonsense"),
        ("api.example.com", ""),
    ],
)
def test_pattern_does_not_match_other_origins(pattern: str, url: str) -> None:
    assert not matches(pattern, url)


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
