"""Have a provider read the part of a prompt that stays into its cache, before the first call needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import openai

from fastlane.compat.parsing import with_response_format, with_text_format
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.usage import usage_counts

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

# The least that OpenAI's /responses take: https://github.com/earendil-works/pi/issues/6265
_LEAST_RESPONSE = 16
# A user's turn, which most templates want, of one token.
_TURN = {"role": "user", "content": "."}
# What is said of an answer that ended before its first visible token, when the prompt had been read:
# https://github.com/spiceai/spiceai/issues/7126
_READ_ALL_THE_SAME = "output limit was reached"
_TOO_FEW = "minimum value"

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# What would make the answer longer, or another kind of thing.
_NOT_PASSED_ON = (*_LIMITS, "n", "stream", "stream_options", "background", "prediction")
_LISTS = {CHAT: "messages", RESPONSES: "input"}


class Prewarmed(NamedTuple):
    """What was read into the cache, by the provider's own count."""

    tokens: int | None
    """Tokens of the prompt that was read; None where the provider did not say."""
    cached_tokens: int | None
    """Of these, what was in the cache already; None where the provider did not say, which is not 0."""
    cache_write_tokens: int | None
    """Of these, what was written to the cache, where that is counted."""
    how: Literal["provider", "call", "disabled"]
    """"provider": by the provider's own means, and nothing was generated; "call": by a call of one short answer;
    "disabled": not at all, because FASTLANE_DISABLED is set, and nothing was sent."""


# What there is to say where fastlane is switched off.
_NOTHING_SENT = Prewarmed(None, None, None, "disabled")


class _Way(NamedTuple):
    how: Literal["provider", "call"]
    arguments: dict[str, Any]
    is_last: bool = False


def prewarm(client: Any, prompt: Sequence[Any], *, model: str, endpoint: str = CHAT, **arguments: Any) -> Prewarmed:
    """Have the provider read what stays of a prompt, with one call of `client`, and so with its plays.

    What stays is what was declared stable or of the session (`Prompt`, `stable`), and where nothing
    was declared, the leading system and developer messages. `arguments` are those of the calls that are to come, such
    as `tools` and `response_format`: they are part of what is kept. Where facts say that the provider has means of its
    own for this model, it generates nothing; else, or where it refuses them, it generates one token (16 at /responses),
    which is billed as any call is. With FASTLANE_DISABLED nothing is sent. Raises ConfigurationError where nothing of
    the prompt stays, or for another endpoint, and what the call raises.
    """
    if is_disabled(client):
        return _NOTHING_SENT
    create, facts = _create_of(client, endpoint), _facts_of(client)
    for way in _ways(facts, prompt, model, endpoint, arguments):
        try:
            return _prewarmed(create(**way.arguments), way.how, facts, endpoint)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if _was_read(error):
                return Prewarmed(None, None, None, way.how)
            if not _may_go_on(way, error):
                raise
    raise AssertionError("the last way returns or raises")


async def async_prewarm(
    client: Any, prompt: Sequence[Any], *, model: str, endpoint: str = CHAT, **arguments: Any
) -> Prewarmed:
    """See `prewarm`; for an asynchronous client."""
    if is_disabled(client):
        return _NOTHING_SENT
    create, facts = _create_of(client, endpoint), _facts_of(client)
    for way in _ways(facts, prompt, model, endpoint, arguments):
        try:
            return _prewarmed(await create(**way.arguments), way.how, facts, endpoint)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if _was_read(error):
                return Prewarmed(None, None, None, way.how)
            if not _may_go_on(way, error):
                raise
    raise AssertionError("the last way returns or raises")


def is_disabled(client: Any) -> bool:
    """Whether it is a client of ours that was made with FASTLANE_DISABLED, and so does what the stock one does."""
    return getattr(client, "_fastlane", True) is None


def _was_read(error: openai.APIStatusError) -> bool:
    """Whether only the answer did not fit, when the prompt had been read."""
    return _READ_ALL_THE_SAME in str(error)


def _may_go_on(way: _Way, error: openai.APIStatusError) -> bool:
    """Whether there is a next way, and a point in it: this one's means were refused, and not the prompt."""
    return not way.is_last and (way.how == "provider" or _TOO_FEW in str(error))


def _facts_of(client: Any) -> ProviderFacts:
    from fastlane.providers import facts_of

    return facts_of(str(client.base_url))


def _create_of(client: Any, endpoint: str) -> Any:
    if endpoint == CHAT:
        return client.chat.completions.create
    if endpoint == RESPONSES:
        return client.responses.create
    raise ConfigurationError(
        f'prewarm(endpoint=...) takes "/chat/completions" or "/responses", whose prompts have parts, got '
        f"{endpoint!r:.80}"
    )


def _ways(
    facts: ProviderFacts, prompt: Sequence[Any], model: str, endpoint: str, arguments: Mapping[str, Any]
) -> Iterator[_Way]:
    """What to call with, one after the other until one is taken."""
    from .placing import place_breakpoints, takes_marks
    from .prompts import Marked

    name = _LISTS[endpoint]
    kept, places, was_declared = what_stays(prompt)
    given = {**_beside(prompt, endpoint), **arguments}
    given = {key: value for key, value in given.items() if key not in _NOT_PASSED_ON and key != name}
    # The answer is too short to be parsed: only what `parse()` sends is needed.
    given = with_text_format(with_response_format(given)) | {"model": model}
    given.pop("text_format", None)
    if endpoint == RESPONSES and (store := facts.parameters.get("store")) is not None and store.value is True:
        given = {"store": False, **given}

    def prepared(turn: Sequence[Any]) -> dict[str, Any]:
        items, declared = [*kept, *turn], (*places, *("volatile" for _ in turn))
        placed = place_breakpoints(endpoint, {**given, name: items}, declared, facts)
        items = items if placed is None else placed.fields[name]
        if was_declared:
            # What plays do to the calls that are to come, they are to do to this one: it is declared alike.
            items = [
                Marked(item, place) if isinstance(item, Mapping) else item
                for item, place in zip(items, declared, strict=True)
            ]
        return {**given, name: items}

    field = facts.cache.prewarm_field.get(endpoint)
    if field is not None and field.value is not None and takes_marks(model, facts):
        head, _, rest = field.value.partition(".")
        own = prepared(())
        # In `extra_body`, because an older openai does not know the field; there, it is laid over the rest.
        extra = dict(own.pop("extra_body", None) or {})
        extra[head] = {**(extra.get(head) or own.pop(head, None) or {}), rest: True} if rest else True
        own.pop(head, None)
        yield _Way("provider", {**own, "extra_body": extra})
    if endpoint == RESPONSES:
        yield _Way("call", {**prepared([_TURN]), "max_output_tokens": _LEAST_RESPONSE}, is_last=True)
        return
    limit = _limit_of(facts)
    yield _Way("call", {**prepared([_TURN]), limit: 1})
    yield _Way("call", {**prepared([_TURN]), limit: _LEAST_RESPONSE}, is_last=True)


def _limit_of(facts: ProviderFacts) -> str:
    """The field that bounds a chat answer: the older one wherever nobody says that the newer one is taken."""
    newer = facts.parameters.get("max_completion_tokens")
    return "max_completion_tokens" if newer is not None and newer.value is True else "max_tokens"


def what_stays(prompt: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...], bool]:
    """Return the messages of a prompt that stay, in order, how long each does, and whether the caller declared that.

    Raises ConfigurationError where none stays.
    """
    from .prompts import arrange, unmarked

    if isinstance(prompt, str | Mapping) or not isinstance(prompt, Sequence):
        raise ConfigurationError(
            f"prewarm() takes a fastlane.prompts.Prompt or a list of messages, got {type(prompt).__name__}"
            + (": put it into a list" if isinstance(prompt, str | Mapping) else "")
        )
    plain, declared = unmarked(prompt)
    messages, places = arrange(plain, declared or ())
    # Where nothing was declared, what comes after the system's messages may be the first question of many.
    stay = ("stable",) if declared is None else ("stable", "session")
    end = next((at for at, place in enumerate(places) if place not in stay), len(places))
    if not end:
        raise ConfigurationError(
            "prewarm() found nothing in the prompt that stays as it is: it takes messages of which some are declared "
            "stable (Prompt(stable=...), stable(message) of fastlane.prompts) or that begin with a system message"
        )
    return messages[:end], places[:end], declared is not None


def _beside(prompt: Sequence[Any], endpoint: str) -> dict[str, Any]:
    """What a `Prompt` brings along beside its messages."""
    from .prompts import Prompt

    return prompt.arguments(endpoint) if isinstance(prompt, Prompt) else {}


def _prewarmed(answer: Any, how: Literal["provider", "call"], facts: ProviderFacts, endpoint: str) -> Prewarmed:
    said = facts.usage.get(endpoint)
    path = "" if said is None or said.value is None else said.value.get("cached", "")
    usage = usage_counts(getattr(answer, "usage", None), path.split(".")[1:])
    return Prewarmed(usage.get("input_tokens"), usage.get("cached_tokens"), usage.get("cache_write_tokens"), how)
