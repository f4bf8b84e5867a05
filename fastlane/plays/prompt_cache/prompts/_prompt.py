"""The messages of a call, laid out by how long each stays as it is, with its tools and format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastlane.errors import ConfigurationError
from fastlane.protocol.prompt_marks import Marked, Placement, marked, unmarked

from ._arrange import arrange
from ._canonical import canonical
from ._checks import format_of, messages_of, tools_of

_ENDPOINTS = ("/chat/completions", "/responses")


class Prompt(list[Any]):
    """A list of messages in order: what is the same in all calls, what is in this conversation, what is in this call.

    It goes wherever a list of messages goes, and `**prompt.arguments()` brings its tools and format along. Each of the
    three takes texts and messages, one or several: a stable or volatile text becomes a system message, a text of the
    session a user's. Messages may have marked parts, which lays each part where it belongs. Nothing is lost, doubled or
    rewritten. What is appended later belongs to the session; `PromptCache` puts what is volatile behind it again.

    Tools and response format are copied with their keys sorted (see `canonical`), so that their bytes are the same in
    every process; a format that is a class stays what it is. Raises ConfigurationError for anything else.
    """

    __slots__ = ("response_format", "tools")

    def __init__(
        self,
        *,
        stable: Any = (),
        session: Any = (),
        volatile: Any = (),
        tools: Iterable[Any] | None = None,
        response_format: Any = None,
        keep_property_order: bool = False,
    ) -> None:
        """Lay out a prompt; `keep_property_order` keeps the order in which schemas name their properties.

        Models write the fields of structured output in that order.
        """
        parts: list[Any] = [_placed(part, "stable") for part in _several(stable)]
        # An answer's own message is none of our dictionaries, and what is not marked belongs to the session anyway.
        parts += [_of_session(part) for part in _several(session)]
        parts += [_placed(part, "volatile") for part in _several(volatile)]
        super().__init__(_laid_out(parts))
        self.tools: list[Any] | None = None
        """The tools in the order given, each with its keys sorted; None where there are none."""
        given = tools_of("fastlane.prompts.Prompt(tools=...)", tools)
        if given is not None:
            self.tools = [canonical(tool, keep_property_order=keep_property_order) for tool in given]
        form = format_of("fastlane.prompts.Prompt(response_format=...)", response_format)
        self.response_format: Any = canonical(form, keep_property_order=keep_property_order)
        """The format of the answer, with its keys sorted; None where there is none."""

    @classmethod
    def of(
        cls,
        messages: Iterable[Any],
        *,
        tools: Iterable[Any] | None = None,
        response_format: Any = None,
        keep_property_order: bool = False,
    ) -> Prompt:
        """Lay out ordinary messages by the marks on them: see `fastlane.prompts.stable`.

        Of those without a mark, leading system and developer messages are stable, and all others of the session.
        Raises ConfigurationError for what is no list of messages.
        """
        given = messages_of("fastlane.prompts.Prompt.of()", messages)
        prompt = cls(tools=tools, response_format=response_format, keep_property_order=keep_property_order)
        prompt.extend(_laid_out(given))
        return prompt

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How long each message stays as it is, in the order in which `PromptCache` sends them."""
        plain, declared = unmarked(self)
        return arrange(plain, declared or ())[1]

    def arguments(self, endpoint: str = "/chat/completions") -> dict[str, Any]:
        """The prompt as keyword arguments of `create()`: messages, and tools and response format where it has them.

        For "/responses" they are called `input`, `tools` and `text` (a class: `text_format`, which `parse()` takes),
        and tools and formats in the form of chat completions are turned into that endpoint's; messages stay as they
        are. Raises ConfigurationError for another endpoint.
        """
        if endpoint not in _ENDPOINTS:
            known = " or ".join(f'"{one}"' for one in _ENDPOINTS)
            raise ConfigurationError(f"fastlane.prompts.Prompt.arguments() takes {known}, got {endpoint!r:.80}")
        form = self.response_format
        if endpoint == "/chat/completions":
            arguments: dict[str, Any] = {"messages": self, "tools": self.tools, "response_format": form}
        else:
            tools = None if self.tools is None else [_flat_tool(tool) for tool in self.tools]
            is_class = isinstance(form, type)
            text = None if form is None or is_class else {"format": _flat_format(form)}
            arguments = {"input": self, "tools": tools, "text": text, "text_format": form if is_class else None}
        return {name: value for name, value in arguments.items() if value is not None}


def _several(given: Any) -> list[Any]:
    """What one of the three places was given, as a list."""
    if given is None:
        return []
    if isinstance(given, str | Mapping):
        return [given]
    # Bytes would be a list of numbers.
    if isinstance(given, Iterable) and not isinstance(given, bytes | bytearray) and not hasattr(given, "model_dump"):
        return list(given)
    return [given]


def _of_session(part: Any) -> Any:
    return part if hasattr(part, "model_dump") else _placed(part, "session")


def _placed(part: Any, placement: Placement) -> Marked:
    if isinstance(part, str | Mapping):
        return marked(part, placement)
    remedy = "write it as a text or as a message's dictionary"
    if hasattr(part, "model_dump"):
        remedy = "convert it first, such as by its model_dump(exclude_unset=True)"
    elif isinstance(part, bytes | bytearray):
        remedy = "decode it first"
    raise ConfigurationError(
        f"fastlane.prompts.Prompt({placement}=...) takes texts and messages as dictionaries, or a list of them, got "
        f"{type(part).__name__}: {remedy}"
    )


def _laid_out(messages: Iterable[Any]) -> list[Any]:
    plain, declared = unmarked(messages)
    arranged, places = arrange(plain, declared or ())
    # It may be a beginning that the model is to go on with, or a turn that others are appended to.
    last = plain[-1] if plain and (declared is None or declared[-1] is None) else None
    return [
        Marked(message, place) if isinstance(message, Mapping) and message is not last else message
        for message, place in zip(arranged, places, strict=True)
    ]


def _flat_tool(tool: Any) -> Any:
    """A function as "/responses" takes it, where it is written as "/chat/completions" takes it."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return tool
    # Functions of chat completions are loose unless they say otherwise, and those of responses are strict.
    return canonical(
        {"strict": False, **function, **{name: value for name, value in tool.items() if name != "function"}},
        keep_property_order=True,
    )


def _flat_format(form: Any) -> Any:
    """A response format as "/responses" takes it, where it is written as "/chat/completions" takes it."""
    inner = form.get("json_schema") if isinstance(form, Mapping) else None
    return {"type": "json_schema", **inner} if isinstance(inner, Mapping) else form
