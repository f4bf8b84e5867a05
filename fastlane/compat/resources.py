"""The chat and responses resources of our clients: subclasses of openai's that build bodies quickly and time calls.

The time of issue is taken at the entry of the method: openai's resources walk through all messages before they call
`request()`, which takes many milliseconds with a long history. Each resource is imported on first use, as in openai:
the two together take tens of milliseconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import cache, cached_property
from inspect import CO_COROUTINE
from types import CellType, CoroutineType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from openai import NotGiven, Omit

from .._clock import now_ns
from .._fork import no_fork
from ..decode.probes import holds
from .requests import PLAIN_TYPES, Issued, is_plain, issued, simplify, stock_bytes
from .response_sockets import connecting

# Copies of openai's own methods
#
# The stock methods pass their arguments to `maybe_transform`, which compares every member of every message with
# openai's types, at about 0.1 ms per message. For these endpoints that does not change plain JSON: none of their types
# has an alias or a format. So a method is copied with one difference: in the copy, `maybe_transform` is the function
# below, which returns plain JSON and passes everything else to openai's. openai's modules are not changed.

_TRANSFORMS = ("maybe_transform", "async_maybe_transform")

# Where the check of required arguments is defined.
_CHECKING = "openai._utils._utils"

# Where the types of these endpoints' arguments are defined.
_TYPES = ("openai.types.chat.", "openai.types.responses.", "openai.types.shared_params.")

# openai's function converts some tuples to lists and not others, and plays see the body before it is written.
_WITHOUT_TUPLES = PLAIN_TYPES - {tuple}

# Arguments with independent members, a few of which may need openai's function: messages that are openai's objects,
# tools made from pydantic models.
_LISTS = ("messages", "input", "tools")


def quick(resource: type[Any], name: str) -> FunctionType | None:
    """Return a copy of a method of one of openai's resources; None if it is patched or not as expected.

    The copy reads the current globals of the method's module at each call, with this one difference.
    """
    method = vars(resource).get(name)
    function = _unchecked(method)
    # A method that another library has replaced is called unchanged.
    if function is None or function.__globals__ is not getattr(sys.modules.get(resource.__module__), "__dict__", None):
        return None
    made: list[FunctionType] = []

    def as_expected() -> bool:
        copied = _copy(method)
        if copied is not None and _is_equivalent(method, copied):
            made.append(copied)
        return bool(made)

    seam = f"openai's {resource.__name__}.{name}()"
    if not holds(seam, as_expected):
        return None
    return made[0] if made else _copy(method)


def _unchecked(method: Any) -> FunctionType | None:
    """Return the function inside openai's check of required arguments, or the function itself."""
    if type(method) is not FunctionType:
        return None
    if method.__globals__.get("__name__") != _CHECKING:
        return method
    inner = _closed_over(method, "func")
    return inner if type(inner) is FunctionType else None


def _closed_over(function: FunctionType, name: str) -> Any:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return cells[name].cell_contents


def _copy(method: Any) -> FunctionType | None:
    function = _unchecked(method)
    inner = None if function is None else _rebind(function)
    if inner is None or inner.__code__ is method.__code__:
        return inner
    # openai's check of required arguments is around it.
    cells = tuple(
        CellType(inner) if name == "func" else cell
        for name, cell in zip(method.__code__.co_freevars, method.__closure__, strict=True)
    )
    return _with(method, method.__globals__, cells)


def _with(function: FunctionType, its_globals: dict[str, Any], cells: tuple[CellType, ...] | None) -> FunctionType:
    copied = FunctionType(function.__code__, its_globals, function.__name__, function.__defaults__, cells)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__ = function.__qualname__
    copied.__module__ = function.__module__
    return copied


def _transforms(value: Any) -> bool:
    return type(value) is FunctionType and not set(_TRANSFORMS).isdisjoint(value.__code__.co_names)


def _rebind(function: FunctionType) -> FunctionType | None:
    """Return a copy for which `maybe_transform` is ours; None if the function does not call it.

    If it calls it through another function of openai, that one is copied as well.
    """
    theirs = function.__globals__
    ours: dict[str, Any] = {}
    for name in function.__code__.co_names:
        value: Any = theirs.get(name)
        if name in _TRANSFORMS:
            ours[name] = (_async_building if name.startswith("async_") else _building)(value)
        elif _transforms(value) and value.__module__.startswith("openai.lib."):
            ours[name] = _rebind(value)
    return _with(function, _overlay_globals(theirs, ours), function.__closure__) if ours else None


def _overlay_globals(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return a globals dictionary with our functions, which reads all other names from the module at each access."""
    # The interpreter calls `__missing__` of a dictionary's subclass. It, warnings and tracebacks read some names
    # without that: these are copied.
    inside = {name: value for name, value in theirs.items() if name.startswith("__") and name.endswith("__")}
    overlaid: dict[str, Any] = type("Globals", (dict,), {"__missing__": theirs.__getitem__})(inside | ours)
    return overlaid


def _building(stock: Callable[..., Any]) -> Callable[..., Any]:
    def maybe_transform(data: Any, expected_type: Any) -> Any:
        body = _plain_body(data, stock)
        return stock(data, expected_type) if body is None else body

    return maybe_transform


def _async_building(stock: Callable[..., Any]) -> Callable[..., Any]:
    def at_once(data: Any, expected_type: Any) -> Any:
        return _outcome(stock(data, expected_type))

    async def async_maybe_transform(data: Any, expected_type: Any) -> Any:
        body = _plain_body(data, at_once)
        return await stock(data, expected_type) if body is None else body

    return async_maybe_transform


def _outcome(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """Run a coroutine that does not wait, and return its result. Raises RuntimeError if it waits."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    coroutine.close()
    raise RuntimeError("openai's function waits for something")


def _plain_body(data: Any, stock: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the body; None if openai's function has to transform it.

    As with openai's function, lists and messages are copied, so that the body does not change if the caller changes
    them during the call. Values deeper inside are not copied.
    """
    if type(data) is not dict:
        return None
    body = data.copy()
    for name, value in data.items():
        if type(value) is Omit or type(value) is NotGiven:
            del body[name]
    for name in ("messages", "tools"):
        if type(body.get(name)) is tuple:
            body[name] = list(body[name])
    call = issued.get()
    written = stock_bytes(body, _WITHOUT_TUPLES)
    # Marked messages cannot be written: look for marks only if writing failed.
    if written is None and (placements := _unmark(body)) is not None:
        if call is not None:
            call.placements = placements
        written = stock_bytes(body, _WITHOUT_TUPLES)
    if written is None and not is_plain(body, _WITHOUT_TUPLES):
        for name in _LISTS:
            if type(body.get(name)) is list:
                body[name] = [simplify(member, stock) for member in body[name]]
        if not is_plain(body, _WITHOUT_TUPLES):
            return None
    for name, value in body.items():
        if type(value) is list:
            try:
                body[name] = list(map(dict.copy, value))
            except TypeError:
                body[name] = [member.copy() if type(member) is dict else member for member in value]
    if call is not None and call.is_direct and written is not None:
        call.body, call.written = body, written
    return body


def _unmark(body: dict[str, Any]) -> tuple[Any, ...] | None:
    """Replace marked messages by plain dictionaries. Returns the declared placements, or None if nothing is marked."""
    for name in ("messages", "input"):
        messages = body.get(name)
        if isinstance(messages, list | tuple):
            from ..protocol.prompt_marks import unmarked

            plain, placements = unmarked(messages)
            body[name] = plain  # also in place of a tuple or a subclass of list
            if placements is not None:
                return placements
    return None


class _FakeResource:
    """Stands in for a resource, and records the arguments with which a method calls `_post`."""

    def __init__(self, *, asynchronous: bool) -> None:
        self._post = self._keep_later if asynchronous else self._keep
        self.path = ""
        self.arguments: dict[str, Any] = {}

    def _keep(self, path: str, **arguments: Any) -> None:
        self.path, self.arguments = path, arguments

    async def _keep_later(self, path: str, **arguments: Any) -> None:
        self._keep(path, **arguments)

    def of(self, method: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Return path, ordered body, options and the rest; without `post_parser`, which is a new function each time."""
        calling = method(self, **arguments)
        if isinstance(calling, CoroutineType):
            _outcome(calling)
        rest = dict(self.arguments)
        options = {name: value for name, value in rest.pop("options").items() if name != "post_parser"}
        return self.path, list(rest.pop("body").items()), options, rest


def _is_equivalent(method: Any, copied: FunctionType) -> bool:
    """Return whether the copy sends the same as the method without openai's transformation, and no type needs that."""
    if any(_has_aliases(name, module) for name, module in list(sys.modules.items()) if name.startswith(_TYPES)):
        return False
    code = _unchecked(method).__code__  # type: ignore[union-attr]
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    conversation = "messages" if "messages" in named else "input"
    parts = [{"type": "text", "text": "?"}]
    arguments = {"model": "m", conversation: [{"role": "user", "content": parts}]}
    asynchronous = bool(code.co_flags & CO_COROUTINE)
    stock, ours = _FakeResource(asynchronous=asynchronous), _FakeResource(asynchronous=asynchronous)
    if stock.of(method, arguments) != ours.of(copied, arguments):
        return False
    # openai's function would have copied the list.
    return ours.arguments["body"][conversation][0]["content"] is parts


def _has_aliases(name: str, module: Any) -> bool:
    """Return whether a module defines argument types with aliases or formats."""
    members = vars(module)
    # Only typed dictionaries have `__total__`, from typing or typing_extensions.
    kinds = [member for member in members.values() if isinstance(member, type) and member.__module__ == name]
    return "PropertyInfo" in members and any(hasattr(kind, "__total__") for kind in kinds)


# The resources of our clients

_Made = TypeVar("_Made")


class made_once(cached_property[_Made]):  # noqa: N801 - used as a decorator
    """A `cached_property` without the lock that it has before Python 3.12, which can deadlock a forked child."""

    if not TYPE_CHECKING:  # its type is that of the base class

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the value, and make it on first access. If two threads make it at once, one value is kept."""
            if instance is None:
                return self
            # A value in the instance is found before this, because it is not a data descriptor.
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


def chat_of(client: Any, *, asynchronous: bool) -> Any:
    """Return `client.chat` of a client."""
    return _chat_class(asynchronous=asynchronous)(client)


def responses_of(client: Any, *, asynchronous: bool) -> Any:
    """Return `client.responses` of a client."""
    return _responses_class(asynchronous=asynchronous)(client)


@cache
def _chat_class(*, asynchronous: bool) -> type[Any]:
    with no_fork:
        from openai.resources import chat
        from openai.resources.chat import completions

        # openai imports these classes lazily, on access.
        base: Any = chat.AsyncChat if asynchronous else chat.Chat
        name = "AsyncCompletions" if asynchronous else "Completions"
        stamped = _stamping(getattr(completions, name), asynchronous=asynchronous)

    class StampedChat(base):  # type: ignore[misc]
        @made_once
        def completions(self) -> Any:
            return stamped(self._client)

    StampedChat.__name__ = base.__name__
    return StampedChat


@cache
def _responses_class(*, asynchronous: bool) -> type[Any]:
    with no_fork:
        from openai.resources import responses

        resource = responses.AsyncResponses if asynchronous else responses.Responses
        return _stamping(resource, asynchronous=asynchronous, **connecting(resource, asynchronous=asynchronous))


OWN_POSTS: set[Any] = set()
"""The `post()` functions of our clients, which register them."""


class _Method:
    """Chooses what a resource's method runs: a quick copy of openai's method, or its replacement.

    Instrumentations replace methods of openai's classes, also after our clients were made.
    """

    __slots__ = ("_choice", "_name", "_resource")

    def __init__(self, resource: type[Any], name: str) -> None:
        self._resource = resource
        self._name = name
        self._choice: tuple[Any, Callable[..., Any] | None] = (None, None)

    def now(self) -> Callable[..., Any]:
        found = self._resource.__dict__.get(self._name)
        seen, run = self._choice
        if found is not seen or found is None or run is None:
            run = quick(self._resource, self._name) or getattr(self._resource, self._name)
            self._choice = (found, run)
        return run


def _stamped(resource: type[Any], name: str) -> Any:
    method = _Method(resource, name)

    @functools.wraps(getattr(resource, name))
    def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        post = self._post  # an application's own may change the body, and so may the one of its resource
        call = Issued(now_ns(), is_direct=type(post) is MethodType and post.__func__ in OWN_POSTS)
        token = issued.set(call)
        try:
            return method.now()(self, *args, **kwargs)
        finally:
            issued.reset(token)

    return stamped


def _async_stamped(resource: type[Any], name: str) -> Any:
    method = _Method(resource, name)

    @functools.wraps(getattr(resource, name))
    async def stamped(self: Any, *args: Any, **kwargs: Any) -> Any:
        post = self._post  # an application's own may change the body, and so may the one of its resource
        call = Issued(now_ns(), is_direct=type(post) is MethodType and post.__func__ in OWN_POSTS)
        token = issued.set(call)
        try:
            return await method.now()(self, *args, **kwargs)
        finally:
            try:
                issued.reset(token)
            except ValueError:  # the coroutine is closed outside of its task, in another context
                pass

    return stamped


def _stamping(resource: type[Any], *, asynchronous: bool, **more: Any) -> type[Any]:
    """Make a subclass of a resource that times its calls, with `more` methods. It calls its base's current methods.

    `stream()` is not timed: it only prepares a call, which its context manager issues by `create()`.
    """
    stamped = _async_stamped if asynchronous else _stamped
    methods = {name: stamped(resource, name) for name in ("create", "parse") if hasattr(resource, name)}
    return type(resource.__name__, (resource,), {**methods, **more})
