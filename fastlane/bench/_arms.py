"""The arms of a comparison: each a name and the way its client is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import openai

from .._exceptions import ConfigurationError

BASELINE = "baseline"
DEFAULT_ARMS = (BASELINE, "connection", "encoding", "fastlane")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to make a client.

    `make_client` gets the base URL and the key, and is called once per run, in the arm's own process: it must be a
    function of a module, not a lambda.
    """

    name: str
    description: str
    make_client: Callable[[str, str], openai.OpenAI]


def _stock(base_url: str, api_key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key=api_key)


def _connection(base_url: str, api_key: str) -> openai.OpenAI:
    from fastlane import Connection, OpenAI

    return OpenAI(base_url=base_url, api_key=api_key, plays=[Connection()])


def _encoding(base_url: str, api_key: str) -> openai.OpenAI:
    from fastlane import Connection, Encoding, OpenAI

    # Nobody has written down what the embedded provider takes, or what a server of the user's own does.
    return OpenAI(base_url=base_url, api_key=api_key, plays=[Connection(), Encoding(probe=True)])


def _default_plays(base_url: str, api_key: str) -> openai.OpenAI:
    from fastlane import OpenAI

    return OpenAI(base_url=base_url, api_key=api_key)


def _no_plays(base_url: str, api_key: str) -> openai.OpenAI:
    from fastlane import OpenAI

    return OpenAI(base_url=base_url, api_key=api_key, plays=[])


KNOWN_ARMS = {
    arm.name: arm
    for arm in (
        Arm(name=BASELINE, description="openai.OpenAI()", make_client=_stock),
        Arm(name="baseline-again", description="openai.OpenAI(): what the bench itself sways by", make_client=_stock),
        Arm(name="no-plays", description="fastlane.OpenAI(plays=[])", make_client=_no_plays),
        Arm(name="connection", description="fastlane.OpenAI(plays=[Connection()])", make_client=_connection),
        Arm(
            name="encoding",
            description="fastlane.OpenAI(plays=[Connection(), Encoding(probe=True)])",
            make_client=_encoding,
        ),
        Arm(name="fastlane", description="fastlane.OpenAI(): its default plays", make_client=_default_plays),
    )
}


def arms_named(names: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms with these names, in this order. Raises ConfigurationError, which lists the known ones."""
    known = ", ".join(KNOWN_ARMS)
    if not names:
        raise ConfigurationError(f"at least one arm is needed, got none: the known arms are {known}")
    for name in names:
        if name not in KNOWN_ARMS:
            raise ConfigurationError(f"unknown arm {name!r}: the known arms are {known}")
        if list(names).count(name) > 1:
            raise ConfigurationError(
                f"arm {name!r} is named twice: to compare the stock client with itself, use {BASELINE},baseline-again"
            )
    return tuple(KNOWN_ARMS[name] for name in names)


def compared_with(names: Sequence[str]) -> str:
    """Return the arm that the others are compared with: the stock client where it takes part, else the first."""
    return BASELINE if BASELINE in names else names[0]
