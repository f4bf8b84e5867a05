"""From an address to a store: what is understood, what is refused, and that no password is ever shown."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fastlane import ConfigurationError, MissingExtraError
from fastlane.knowledge.stores._store import store_of

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://", "redis://localhost:6379"),
        ("redis://cache.internal", "redis://cache.internal:6379"),
        (f"redis://:{SECRET}@cache.internal:7000/3", "redis://cache.internal:7000"),
        (f"redis://user:{SECRET}@[::1]:7000", "redis://::1:7000"),
        (f"redis://cache.internal?password={SECRET}", "redis://cache.internal:6379"),
        (f"rediss://user:{SECRET}@cache.internal:6380/0", "rediss://cache.internal:6380"),
        ("rediss://cache.internal?ssl_cert_reqs=none", "rediss://cache.internal:6379"),
        ("rediss://cache.internal?ssl_ca_certs=/etc/ca.pem", "rediss://cache.internal:6379"),
        (f"unix://:{SECRET}@/run/redis.sock?db=2", "unix:///run/redis.sock"),
    ],
)
def test_an_address_is_understood_and_shown_without_its_password(url: str, shown: str) -> None:
    store = store_of(url)

    assert repr(store) == f"SharedStore({shown!r}, state='away')"
    assert SECRET not in f"{store!r}{store}"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/5@cache.internal",
        f"redis://:12/{SECRET}@cache.internal",
        f"redis://:1?{SECRET}@cache.internal",
        f"redis://:1#{SECRET}@cache.internal",
        f"redis://cache.internal:{SECRET}",
        f"redis://cache.internal?db={SECRET}",
        f"redis://cache.internal?{SECRET}={SECRET}",
        f"redis://cache.internal?protocol={SECRET}&nonsense=1",
        f"redis://[{SECRET}",
        f"http://:{SECRET}@cache.internal",
        f"REDIS //{SECRET}",
        SECRET,
        "",
        "unix://",
    ],
)
def test_an_address_that_cannot_work_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="redis://") as caught:
        store_of(url)

    error: BaseException | None = caught.value
    while error is not None:  # What it came from is shown by some loggers.
        assert SECRET not in f"{error}{error!r}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "settings",
    [{"url": None}, {"url": b"redis://"}, {"namespace": ""}, {"namespace": 5}, {"history": 0}, {"history": "9"}],
    ids=str,
)
def test_a_setting_that_cannot_work_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expects"):
        store_of(**{"url": "redis://", **settings})


def test_without_the_redis_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(MissingExtraError, match=r"fastlane-llm\[redis\]"):
        store_of("redis://localhost")


def test_nobody_who_does_not_ask_for_a_store_loads_redis() -> None:
    code = (
        "import sys, fastlane, fastlane.knowledge.stores._store; "
        "print([name for name in sys.modules if 'redis' in name])"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"
