"""The arms of a comparison: each a name and the way its client is made."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, Final

import openai

from ..compat.clients import stock_client
from ..errors import ConfigurationError
from ..plays import Connection, Hedging, Play, PromptCache, RequestEncoding

BASELINE: Final = "baseline"
DEFAULT_ARMS: Final = (BASELINE, "fastlane", "baseline-async", "fastlane-async")
AGAIN: Final = "-again"
_NAME: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")

MakeClient = Callable[[str, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to make a client. Raises ConfigurationError for one that no process of its own could make.

    Without `client` it is `fastlane.OpenAI`, or `fastlane.AsyncOpenAI`, with exactly `plays`.
    """

    name: str
    plays: tuple[Play, ...] | None = None
    client: MakeClient | None = None
    """Any function of a module, called as `client(base_url, api_key)` once in each of the arm's processes, on a running
    event loop; it may be asynchronous itself. What it returns has to have `chat.completions.create`, synchronous or
    asynchronous, as openai's clients have."""
    asynchronous: bool | None = None
    description: str = ""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"an arm's name is printable ASCII text, got {self.name!r}")
        if self.client is not None and self.plays is not None:
            raise ConfigurationError(f"arm {self.name!r} has both `client` and `plays`: leave one out")
        if self.client is not None and not _can_be_pickled(self.client):
            wanted = "has to be a function of an importable module, for the arm's process"
            raise ConfigurationError(f"the client of arm {self.name!r} {wanted}: got {self.client!r:.80}")
        if self.asynchronous is None:
            set_(self, "asynchronous", self.client is not None and _returns_asynchronous(self.client))
        if self.plays is not None:
            set_(self, "plays", tuple(self.plays))
        for play in self.plays or ():
            if not isinstance(play, Play):
                wanted = "have to be plays such as Connection()"
                raise ConfigurationError(f"the plays of arm {self.name!r} {wanted}, got {play!r:.80}")
        which = "fastlane.AsyncOpenAI" if self.asynchronous else "fastlane.OpenAI"
        default = f"{which}(): its default plays"
        if self.client is not None:
            default = f"{self.client.__module__}:{self.client.__qualname__}"
        elif self.plays is not None:
            default = f"{which}(only_plays=[{', '.join(map(_written, self.plays))}])"
        set_(self, "description", self.description or default)

    def make_client(self, base_url: str, api_key: str) -> Any:
        """Make the client; an awaitable of one where `client` is asynchronous itself."""
        if self.client is not None:
            return self.client(base_url, api_key)
        import fastlane

        options: dict[str, Any] = {} if self.plays is None else {"only_plays": self.plays}
        make = fastlane.AsyncOpenAI if self.asynchronous else fastlane.OpenAI
        return make(base_url=base_url, api_key=api_key, **options)


def _written(play: Play) -> str:
    """Return how a play was made: its kind, and the settings that are not the defaults."""
    settings = [each for each in fields(play) if each.init and each.repr]  # type: ignore[arg-type]
    values = {each.name: getattr(play, each.name) for each in settings if getattr(play, each.name) != each.default}
    return f"{type(play).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def _can_be_pickled(client: MakeClient) -> bool:
    try:
        pickle.dumps(client)
    except Exception:  # noqa: BLE001 - whatever a callable's own pickling raises
        return False
    return callable(client)


def _returns_asynchronous(client: MakeClient) -> bool:
    """Whether a function is annotated to return an asynchronous client, such as openai.AsyncOpenAI."""
    try:
        returned = inspect.signature(client).return_annotation
    except (TypeError, ValueError):  # A class or a builtin without a signature.
        return False
    name = returned if isinstance(returned, str) else getattr(returned, "__name__", "")
    return name.rpartition(".")[2].startswith("Async")


def stock(base_url: str, api_key: str) -> openai.OpenAI:
    client: openai.OpenAI = stock_client(openai.OpenAI, base_url=base_url, api_key=api_key)
    return client


def stock_async(base_url: str, api_key: str) -> openai.AsyncOpenAI:
    client: openai.AsyncOpenAI = stock_client(openai.AsyncOpenAI, base_url=base_url, api_key=api_key)
    return client


# There are no facts about the embedded provider, or about a server of yours.
_ENCODING: Final = RequestEncoding(forms=("json+gzip",))
_ALL: Final = (Connection(), _ENCODING, PromptCache())
ATTRIBUTABLE: Final[Mapping[str, Play]] = {
    "connection": Connection(),
    "encoding": _ENCODING,
    "prompt-cache": PromptCache(),
    "hedging": Hedging(),
}
"""Plays to which a gain can be attributed by name: they change no meaning on any calls."""

KNOWN_ARMS: Final = {
    arm.name: arm
    for arm in (
        Arm(name=BASELINE, description="openai.OpenAI()", client=stock),
        Arm(name=BASELINE + AGAIN, description="openai.OpenAI(): what the bench itself sways by", client=stock),
        Arm(name="baseline-async", description="openai.AsyncOpenAI()", client=stock_async),
        Arm(name="no-plays", plays=()),
        Arm(name="connection", plays=(Connection(),)),
        Arm(name="encoding", plays=(Connection(), _ENCODING)),
        Arm(name="prompt-cache", plays=(Connection(), PromptCache())),
        Arm(name="hedging", plays=(Connection(), Hedging())),
        Arm(name="all", plays=_ALL),
        Arm(name="all-async", plays=_ALL, asynchronous=True),
        Arm(name="fastlane"),
        Arm(name="fastlane-async", asynchronous=True),
    )
}
"""What can run on any calls without changing what the model sees or what comes back."""


def arms_named(names: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms with these names, in this order.

    A name with a colon, `module:attribute`, is an Arm, a function that makes a client, or a list of plays of a module.
    Raises ConfigurationError, which lists the known ones.
    """
    known = f"the known arms are {', '.join(KNOWN_ARMS)}"
    if not names:
        raise ConfigurationError(f"at least one arm is needed, got none: {known}")
    for name in names:
        if list(names).count(name) > 1:
            raise ConfigurationError(f"arm {name!r} is named twice: its copy is {BASELINE}-again, or your own Arm")
        if ":" not in name and name not in KNOWN_ARMS:
            raise ConfigurationError(f"unknown arm {name!r}: {known}; module:attribute names one of your own")
    return tuple(_imported(name) if ":" in name else KNOWN_ARMS[name] for name in names)


def _imported(name: str) -> Arm:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # Whatever the module raises while it is imported.
        why = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"arm {name!r} names nothing that can be imported: {why}") from error
    if isinstance(found, Arm):
        return found
    plays = (found,) if isinstance(found, Play) else found
    if isinstance(plays, list | tuple) and all(isinstance(each, Play) for each in plays):
        return Arm(name=attribute, plays=tuple(plays), description=name)
    if callable(found):
        return Arm(name=attribute, client=found, description=name)
    wanted = "an Arm, a function (base_url, api_key) -> client, or a list of plays"
    raise ConfigurationError(f"arm {name!r} is {found!r:.80}: expected {wanted}")


def copy_of(reference: Arm) -> Arm:
    """Return a second arm with the reference's client: what the two differ by is the instrument's own band."""
    description = f"{reference.description}, again: what the bench itself sways by"
    return replace(reference, name=reference.name + AGAIN, description=description)


def attributing(plays: Sequence[Play]) -> tuple[Arm, ...]:
    """Return the arms that tell what each of two or more plays contributes: none, each alone, all but each, all."""
    names = [type(play).__name__ for play in plays]
    if len(names) < 2 or len(set(names)) < len(names):
        got = ", ".join(names) or "none"
        raise ConfigurationError(f"attribute needs two plays or more, each of another kind, got {got}")
    arms = [Arm(name="none", plays=())]
    for name, play in zip(names, plays, strict=True):
        arms.append(Arm(name=f"only {name}", plays=(play,)))
        # Of two plays, "only one" is "all but the other": the same arm twice would be no more than another copy.
        if len(plays) > 2:
            arms.append(Arm(name=f"all but {name}", plays=tuple(each for each in plays if each is not play)))
    return (*arms, Arm(name="every play", plays=tuple(plays)))


def counterparts(arms: Sequence[Arm]) -> dict[str, str]:
    """Return the name of the reference that each arm is compared with, by the arm's name; a reference's is its own.

    That is the first stock client of the arm's kind, synchronous or asynchronous, if another client of this kind is
    compared with it. Without such a pair it is the first stock client, or else the first arm.
    """
    originals = [arm for arm in arms if not arm.name.endswith(AGAIN)]
    stocks = [arm for arm in originals if arm.client in (stock, stock_async) or arm.name == BASELINE]
    kinds = {arm.asynchronous for arm in originals if arm not in stocks}
    references = {arm.asynchronous: arm.name for arm in reversed(stocks) if arm.asynchronous in kinds}
    named = [arm.name for arm in stocks if arm.name in references.values()] or [(stocks or arms)[0].name]
    bases = {arm.name: arm.name.removesuffix(AGAIN) for arm in arms}
    return {
        arm.name: bases[arm.name] if bases[arm.name] in named else references.get(arm.asynchronous, named[0])
        for arm in arms
    }


def is_asynchronous(client: Any) -> bool:
    """Whether a client's requests have to be awaited."""
    create = client.chat.completions.create
    return isinstance(client, openai.AsyncOpenAI) or inspect.iscoroutinefunction(inspect.unwrap(create))
