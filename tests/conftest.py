"""What the tests of the client share: the embedded provider over real TLS and HTTP/2, and clients that trust it."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from fastlane.emulator import Emulator, preset
from fastlane.emulator.wire import Wire
from tests import known_ports
from tests.attempts.scripted import Upstream, two_upstreams
from tests.call_peer import PROTOCOLS, CallPeer, trusted
from tests.transport import peer as scripted_peer
from tests.waiting import Form

# A shell without job control has its background jobs ignore Ctrl-C, and tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What an example takes says how busy the machine is, and nothing about what is tested.
# Where a change is judged, each run sees the same examples: what the next run may find is no fault of that change.
settings.register_profile(
    "unhurried",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
# `make fuzz`: many inputs, other ones in each run, and those that failed once more.
settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=10_000, print_blob=True
)
settings.register_profile("brief", settings.get_profile("unhurried"), max_examples=10)
settings.load_profile("unhurried")

# A change is judged by one of them, which its commit decides; what a whole run finds, `make nightly` finds.
PARTS = 10

# Nothing of the environment that the tests run in may reach a client.
for name in [name for name in os.environ if name.startswith(("OPENAI_", "AZURE_OPENAI_", "FASTLANE_"))]:
    del os.environ[name]
for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --brief, --part, --every-fault, and --late-ms, under which tests fail that depend on a quick connection."""
    brief = "run each test function with one set of its parameters, and none that is marked slow"
    parser.addoption("--brief", action="store_true", help=brief)
    part = f"beside what --brief runs, one of {PARTS} parts of all the rest: a number from 0"
    parser.addoption("--part", type=int, choices=range(PARTS), metavar="N", help=part)
    text = "delay each TLS handshake of the scripted servers by so many milliseconds, the round trip to the emulator"
    parser.addoption("--late-ms", type=float, default=0.0, help=text)
    every = "run every cell of the fault matrix, with all retries and large bodies, and not a covering part"
    parser.addoption("--every-fault", action="store_true", help=every)


def pytest_configure(config: pytest.Config) -> None:
    """Apply --late-ms and --brief."""
    gc.disable()  # the tests that are found stay: looking for garbage among them takes a fifth of this time
    if config.getoption("--brief"):
        settings.load_profile("brief")
    scripted_peer.default_late_ms = config.getoption("--late-ms")


def _is_in_part(config: pytest.Config, name: str) -> bool:
    part: int | None = config.getoption("--part")
    return crc32(name.encode()) % PARTS == part


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Apply --brief and --part: of each function the same case in every run, and not the first one of all.

    What is not to run is not even made, which takes a tenth of the time in which tests are found.
    """
    yield
    name, cases = metafunc.definition.nodeid, metafunc._calls
    if metafunc.config.getoption("--brief") and cases:
        kept = cases[crc32(name.encode()) % len(cases)]
        metafunc._calls = [case for case in cases if case is kept or _is_in_part(metafunc.config, f"{name}[{case.id}]")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply --brief and --part to slow tests."""
    if config.getoption("--brief"):
        left_out = [one for one in items if one.get_closest_marker("slow") and not _is_in_part(config, one.nodeid)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [one for one in items if one not in left_out]


def pytest_collection_finish() -> None:
    """Have garbage collected again, once all tests are found."""
    gc.enable()


@given(none())
def _nothing_in_particular(_: None) -> None:
    """Hold for everything."""


@pytest.fixture(scope="session", autouse=True)
def hypothesis_has_its_generator_of_random_numbers() -> None:
    """Have Hypothesis make it before anything is frozen.

    It looks through the garbage collector's objects for what holds the generator, and warns where it finds nothing,
    as it does among frozen ones.
    """
    _nothing_in_particular()


@pytest.fixture(scope="module", autouse=True)
def what_is_there_already_is_not_looked_through(
    hypothesis_has_its_generator_of_random_numbers: None,
) -> Iterator[None]:
    """Have the garbage collector leave out what other modules have left, which takes it a second each time.

    What a module leaves unclosed is found at its end, also by a worker of pytest-xdist, whose own end tells nothing.
    """
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def nothing_is_known_of_any_port() -> None:
    """Forget what was learned of servers by their address: after thousands of them a new one has an old one's port."""
    known_ports.forget()


@pytest.fixture(scope="session")
def running_provider() -> Iterator[Emulator]:
    """One embedded provider without delays, in a process of its own, for the whole session."""
    late_s = scripted_peer.default_late_ms / 1e3
    with Emulator(model=preset("instant"), seed=0, wire=Wire(round_trip_time_s=late_s) if late_s else None) as provider:
        yield provider


@pytest.fixture
def provider(running_provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The embedded provider as it was at its start, trusted by clients that the test makes."""
    for name, value in running_provider.environment.items():
        monkeypatch.setenv(name, value)
    running_provider.reset()
    return running_provider


@pytest.fixture
def arguments(provider: Emulator) -> dict[str, Any]:
    """What every client of the provider is made with."""
    return {"api_key": "sk-test", "base_url": provider.base_url}


@pytest.fixture(params=["sync", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    """Makes clients of each kind, used alike."""
    form = Form(request.param)
    yield form
    form.close()


@pytest.fixture
def trusting_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Clients that the test makes trust the peers of calls, and those of processes with these variables."""
    with trusted(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return environment


@pytest.fixture
def upstreams(trusting_peers: None) -> Iterator[tuple[Upstream, Upstream]]:
    """Two scripted upstreams, "near" and "far"."""
    with two_upstreams() as both:
        yield both


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is in a cycle stays until the test has it collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module", params=PROTOCOLS)
def running_peer(request: pytest.FixtureRequest) -> Iterator[CallPeer]:
    with CallPeer(request.param) as peer:
        yield peer


@pytest.fixture(scope="module")
def running_peer_of_one_protocol() -> Iterator[CallPeer]:
    with CallPeer("HTTP/1.1") as peer:
        yield peer


@pytest.fixture
def peer(running_peer: CallPeer, trusting_peers: None) -> CallPeer:
    """A scripted server that records its requests, over each protocol."""
    running_peer.clear()
    return running_peer


@pytest.fixture
def one_peer(running_peer_of_one_protocol: CallPeer, trusting_peers: None) -> CallPeer:
    """For what has nothing to do with the protocol: the one that shows the order of headers."""
    running_peer_of_one_protocol.clear()
    return running_peer_of_one_protocol


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, by playwright."""
    from playwright.sync_api import sync_playwright

    from scripts.servers import BROWSER_ARGUMENTS, UnavailableError, program

    try:
        executable = program("chromium")
    except UnavailableError as error:
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(BROWSER_ARGUMENTS))
        yield browser
        browser.close()
