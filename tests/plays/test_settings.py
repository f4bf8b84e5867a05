"""The settings of every play: what cannot work is refused where it is given, and the repr is a fingerprint."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from fastlane import (
    BoundedOutput,
    ConfigurationError,
    Connection,
    ContextTrimming,
    Hedging,
    PromptCache,
    RateLimits,
    RequestEncoding,
    Routing,
    Unbroken,
    Urgency,
)
from fastlane.catalog import Catalog

NAN = float("nan")
FORMS = "(forms=...) takes a tuple of 'json', 'json+gzip', 'msgpack', 'msgpack+gzip', or None, got "
SECONDS = "takes seconds from 1 to 86,400, or None, got "
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (BoundedOutput, {"unbounded": "error"}, "(unbounded=...) takes a whole number from 1, or None"),
    (BoundedOutput, {"early_stop": "soon"}, '"at_once"'),
    (BoundedOutput, {"reasks": -1}, "from 0 to 10"),
    (BoundedOutput, {"reasks": 1, "validate": False}, "leave one of them out"),
    (Connection, {"http2": "always"}, '(http2=...) takes "prefer", "require" or "never", got \'always\''),
    (Connection, {"idle_s": -1}, "(idle_s=...) takes seconds from 0 to 86,400, got -1"),
    (Connection, {"ping_s": True}, f"(ping_s=...) {SECONDS}True"),
    (Connection, {"max_connections": 0}, "(max_connections=...) takes a whole number from 1, got 0"),
    (Connection, {"ping_s": 0.9}, f"(ping_s=...) {SECONDS}0.9"),
    (ContextTrimming, {"high_water_tokens": "32k"}, "(high_water_tokens=...) takes a whole number from 1, got '32k'"),
    (ContextTrimming, {"high_water_tokens": "x" * 200}, "takes a whole number from 1, got 'xxx"),
    (ContextTrimming, {"keep_turns": 2.0}, "(keep_turns=...) takes a whole number from 1, got 2.0"),
    (ContextTrimming, {"low_water_tokens": 32_000}, "must be below the high-water mark, or every turn is a cut"),
    (Hedging, {"budget": 0}, "(budget=...) takes a share of all tokens above 0, up to 1 (0.05 is 5 %), got 0"),
    (Hedging, {"quantile": 1.0}, "(quantile=...) takes a quantile from 0.5 to below 1"),
    (Hedging, {"minimum_delay_s": float("inf")}, "(minimum_delay_s=...) takes seconds from 0, got inf"),
    (Hedging, {"not_with_tools": "send_mail"}, "takes names of tools, (\"send_mail\",), got 'send_mail'"),
    (PromptCache, {"key": ""}, "(key=...) takes True, False or a text, got ''"),
    (PromptCache, {"breakpoints": None}, "(breakpoints=...) takes True or False, got None"),
    (PromptCache, {"retention": 24}, 'takes a time in the provider\'s words ("30m"), or None, got 24'),
    (RateLimits, {"requests_per_minute": 0}, "(requests_per_minute=...) takes a number above 0, or None, got 0"),
    (RateLimits, {"max_wait_s": -1}, "(max_wait_s=...) takes seconds from 0, or None, got -1"),
    (RequestEncoding, {"forms": "json+gzip"}, f"{FORMS}'json+gzip'"),
    (RequestEncoding, {"forms": ("json+gzip", "zstd")}, f"{FORMS}('json+gzip', 'zstd')"),
    (RequestEncoding, {"min_bytes": -1}, "(min_bytes=...) takes a whole number from 0, got -1"),
    (RequestEncoding, {"gzip_level": 0}, "(gzip_level=...) takes a whole number from 1 to 9, got 0"),
    (RequestEncoding, {"facts": {}}, "takes ProviderFacts, the path of a facts file, or None for what fastlane knows"),
    (Routing, {"catalog": 3}, "Catalog or the path"),
    (Routing, {"first_token_timeout_s": 0}, "seconds above 0"),
    (Routing, {"fallbacks": -1}, "a whole number from 0"),
    (Routing, {"exploration": 0.9}, "a share from 0 to 0.5"),
    (Routing, {"streams": 1}, "True or False"),
    (Routing, {"min_quality": "high"}, "min_quality"),
    (Routing, {"forward_headers": ["authorization"]}, "credential"),
    (Unbroken, {"stall_factor": 1}, "(stall_factor=...) takes a number above 1, got 1"),
    (Unbroken, {"min_stall_s": 0}, "(min_stall_s=...) takes seconds above 0, got 0"),
    (Unbroken, {"min_stall_s": 61.0}, "seconds up to max_stall_s (60.0), got 61.0: raise max_stall_s too"),
    (Unbroken, {"max_thinking_s": -1}, "(max_thinking_s=...) takes seconds above 0, or None, got -1"),
    (Unbroken, {"on_break": "retry"}, '(on_break=...) takes "raise" or "continue"'),
    (Urgency, {"default": "soon"}, "(default=...)"),
    (Urgency, {"max_concurrency": 0}, "(max_concurrency=...) takes a whole number from 1, or None, got 0"),
    (Urgency, {"reserved": 1}, "(reserved=...)"),
    (Urgency, {"ageing_s": NAN}, "(ageing_s=...) takes seconds above 0, got nan"),
]


@pytest.mark.parametrize(("play", "given", "words"), REFUSED)
def test_setting_that_cannot_work_is_refused(play: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        play(**({"catalog": Catalog.example(), **given} if play is Routing else given))

    assert words in str(raised.value)
    assert "x" * 80 not in str(raised.value)
    assert raised.value.__cause__ is None


def test_unknown_setting_is_a_type_error_with_the_names() -> None:
    with pytest.raises(TypeError, match=r"Connection\(\) does not take 'delay'; its settings are .*idle_s"):
        Connection(delay=1)  # type: ignore[call-arg]


def test_positional_settings_and_copies_are_checked() -> None:
    wrong: Any = 5
    with pytest.raises(ConfigurationError, match=r"Routing\(catalog=...\) takes .*, got 5"):
        Routing(wrong)
    with pytest.raises(ConfigurationError, match=r"Urgency\(max_concurrency=...\)"):
        replace(Urgency(), max_concurrency=0)


@pytest.mark.parametrize(
    "play",
    [
        BoundedOutput(unbounded=200, early_stop="at_once", reasks=2),
        Connection(http2="require", idle_s=0, max_connections=1, ping_s=None),
        ContextTrimming(high_water_tokens=4_000, low_water_tokens=2_000),
        Hedging(budget=0.1, not_with_tools=("pay",)),
        PromptCache(key="mine", retention="24h", requests_per_key_per_minute=10),
        RateLimits(tokens_per_minute=6_000),
        RequestEncoding(forms=("json+gzip",), min_bytes=0, gzip_level=9),
        Unbroken(min_stall_s=0.5, on_break="continue"),
        Urgency(default="background", tiers=True, max_concurrency=3),
    ],
    ids=lambda play: type(play).__name__,
)
def test_repr_and_copies_are_the_same_play(play: Any) -> None:
    assert eval(repr(play)) == play
    assert pickle.loads(pickle.dumps(play)) == copy.deepcopy(play) == play
    assert play != type(play)()
