"""With every play on, telemetry on and every log at DEBUG, no call says its key, prompt or answer."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

import fastlane
from fastlane import BoundedOutput, Connection, ContextTrimming, Hedging, PromptCache, RequestEncoding, Routing, Urgency
from fastlane.catalog import Catalog, CatalogModel
from fastlane.emulator import Emulator
from tests.telemetry.conftest import CapturedTelemetry, Listening
from tests.telemetry.planted import exported, forms, stored

KEY = "sk-zq7-key-of-the-client"
OTHER_KEY = "sk-zq7-key-of-the-catalog"
HEADER = "zq7-header-of-the-application"
PROMPT = "zq7-word-of-the-prompt"
ANSWER = "zq7-word-of-the-answer"
KEYS = (KEY, OTHER_KEY, HEADER)
WORDS = (PROMPT, ANSWER)

# Some versions of openai say at DEBUG what they send, prompts and all: that log is theirs.
OPENAIS_OWN = ("openai",)

MESSAGES: list[Any] = [
    {"role": "system", "content": f"{PROMPT} " * 30},
    {"role": "user", "content": [{"type": "text", "text": f"Say {PROMPT}."}]},
]
# Whose key it is, and what goes wrong.
CASES = (
    ("own", None),
    ("own", "status=401"),
    ("own", "malformed"),
    ("routed", None),
    ("routed", "status=500"),
    ("routed", "drop"),
)


class Ticket(pydantic.BaseModel):
    """What an answer is to be, and is not."""

    title: str


class Everything(logging.Handler):
    """Every record of every logger, with all that is in it and the errors that it carries."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, f"{self.format(record)} {vars(record)!r}"))

    def of(self, *, openais_own: bool) -> str:
        return "\n".join(line for name, line in self.lines if name.split(".")[0] in OPENAIS_OWN or not openais_own)


@pytest.fixture
def logs() -> Iterator[Everything]:
    """The root logger at DEBUG: a logger without a level logs everything."""
    handler, root = Everything(), logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def model(name: str, provider: Emulator) -> CatalogModel:
    return CatalogModel(
        name=name, base_url=provider.base_url, api_key_env="ZQ7_KEY", first_token_s=((1, 0.01),), tokens_per_s=100.0
    )


def plays(provider: Emulator) -> list[fastlane.Play]:
    catalog = Catalog(models=(model("near", provider), model("far", provider)))
    # The emulator reads its orders from headers, which other providers get only if they are forwarded.
    captured = ("x-emulator-output-text", "x-emulator-fault")
    return [
        Routing(catalog, exploration=0.0, forward_headers=captured),
        PromptCache(),
        ContextTrimming(),
        BoundedOutput(),
        Hedging(budget=1.0, minimum_delay_s=0.2),
        RequestEncoding(),
        Connection(),
        Urgency(),
    ]


def text_of(error: BaseException) -> str:
    """What an application's log would have of an error."""
    of_ours = [error] if isinstance(error, fastlane.FastlaneError) else []
    pickled = b"".join(pickle.dumps(one) for one in of_ours)
    return f"{error} {error!r} {''.join(traceback.format_exception(error))} {pickled!r}"


def options_of(name: str, fault: str | None) -> dict[str, Any]:
    headers = {"x-emulator-output-text": f"{ANSWER} {ANSWER}", "x-secret": HEADER}
    if fault is not None:
        headers["x-emulator-fault"] = fault
    return {"model": name, "extra_headers": headers, "timeout": 20}


def ask(client: fastlane.OpenAI, name: str, fault: str | None) -> Iterator[BaseException]:
    """Make a call at every entry point, and give the errors."""
    options = options_of(name, fault)
    chat = client.chat.completions
    requests: list[Any] = [
        lambda: chat.create(messages=MESSAGES, **options),
        lambda: list(chat.create(messages=MESSAGES, stream=True, **options)),
        lambda: next(chat.create(messages=MESSAGES, stream=True, **options)).choices,
        lambda: chat.with_raw_response.create(messages=MESSAGES, **options).text,
        lambda: chat.parse(messages=MESSAGES, response_format=Ticket, **options),
        lambda: client.responses.create(input=PROMPT, **options),
        lambda: client.embeddings.create(input=PROMPT, **options),
    ]
    for number, request in enumerate(requests):
        with fastlane.urgency("background" if number % 2 else "interactive"):
            try:
                request()
            except (openai.OpenAIError, ValueError) as error:
                yield error


async def ask_later(client: fastlane.AsyncOpenAI, name: str, fault: str | None) -> list[BaseException]:
    """The same asynchronously, and once cancelled."""
    options = options_of(name, fault)
    chat = client.chat.completions
    errors: list[BaseException] = []
    for stream in (False, True):
        try:
            answer: Any = await chat.create(messages=MESSAGES, stream=stream, **options)
            if stream:
                assert [event async for event in answer]
        except (openai.OpenAIError, ValueError) as error:
            errors.append(error)
    left = asyncio.create_task(chat.create(messages=MESSAGES, **options))
    await asyncio.sleep(0.01)
    left.cancel()
    with suppress(asyncio.CancelledError, openai.OpenAIError, ValueError):
        await left
    await client.close()
    return errors


def leaked(texts: dict[str, bytes], secrets: tuple[str, ...]) -> list[str]:
    return [
        f"{secret} is in {name}"
        for secret in secrets
        for name, text in texts.items()
        if any(form in text for form in forms(secret))
    ]


def everything_of(client: Any, captured: CapturedTelemetry, where: Path) -> dict[str, bytes]:
    texts = {**exported(captured, where), **stored(client)}
    texts["pickled records"] = b"".join(pickle.dumps(one) for one in client.calls)
    texts["the client's parts"] = f"{client._fastlane!r} {client.chat!r} {client.chat.completions!r}".encode()
    return texts


@pytest.mark.parametrize(("whose", "fault"), CASES)
def test_calls_expose_no_key_and_no_prompt(
    whose: str,
    fault: str | None,
    provider: Emulator,
    logs: Everything,
    listening: Listening,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ZQ7_KEY", OTHER_KEY)
    asked = "m" if whose == "own" else "fastlane/auto"
    captured = listening(level="phases")
    spans = tmp_path / "spans"
    spans.mkdir()
    settings: dict[str, Any] = {
        "api_key": KEY,
        "base_url": provider.base_url,
        "max_retries": 0,
        "default_headers": {"x-default": HEADER},
    }
    with fastlane.OpenAI(**settings, only_plays=plays(provider)) as client:
        errors = list(ask(client, asked, fault))
        later = fastlane.AsyncOpenAI(**settings, only_plays=plays(provider))
        errors += asyncio.run(ask_later(later, asked, fault))
        texts = {**everything_of(client, captured, spans), **{f"{k}, async": v for k, v in stored(later).items()}}
    texts["errors"] = "".join(map(text_of, errors)).encode()
    texts["the log"] = logs.of(openais_own=False).encode()
    texts["the terminal"] = "".join(capfd.readouterr()).encode()

    answered = provider.log()
    assert len(answered) >= 7
    assert len(client.calls) >= 7
    assert bool(errors) if fault else not any(isinstance(one, openai.APIStatusError) for one in errors)
    assert captured.spans
    assert "Building HTTP request" in logs.of(openais_own=True)
    # A header that the application adds itself is not a key to openai, which says it at DEBUG.
    assert leaked({**texts, "openai's log": logs.of(openais_own=True).encode()}, (KEY, OTHER_KEY)) == []
    assert leaked({name: text for name, text in texts.items() if name != "the log"}, KEYS) == []
    # An error about a wrong answer belongs to the caller: pydantic quotes it, and so does openai.
    ours = {name: text for name, text in texts.items() if name not in ("errors", "the log")}
    assert leaked(ours, WORDS) == []
    fastlanes = "\n".join(line for name, line in logs.lines if name.split(".")[0] not in OPENAIS_OWN)
    assert leaked({"logs but openai's": fastlanes.encode()}, (*KEYS, *WORDS)) == []


def test_invalid_output_error_quotes_no_answer_or_prompt(provider: Emulator) -> None:
    options = options_of("m", None)
    with (
        fastlane.OpenAI(api_key=KEY, base_url=provider.base_url, only_plays=[BoundedOutput()]) as client,
        pytest.raises(fastlane.InvalidOutputError) as raised,
    ):
        client.chat.completions.parse(messages=MESSAGES, response_format=Ticket, **options)

    error_text = f"{raised.value} {raised.value!r}".encode()
    assert leaked({"the error": error_text}, (*KEYS, *WORDS)) == []


@pytest.mark.parametrize("kind", [fastlane.OpenAI, fastlane.AsyncOpenAI])
def test_client_cannot_be_pickled_with_its_key(kind: Any, provider: Emulator) -> None:
    client = kind(api_key=KEY, base_url=provider.base_url, only_plays=plays(provider))
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(client)


def test_settings_that_are_kept_hold_no_key(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZQ7_KEY", OTHER_KEY)
    catalog = Catalog(models=(model("a", provider),))
    texts = {"the catalog": pickle.dumps(catalog) + repr(catalog).encode()}
    for play in plays(provider):
        texts[type(play).__name__] = repr(play).encode()
    assert leaked(texts, KEYS) == []
    assert b"ZQ7_KEY" in texts["the catalog"]
