"""Build options, JSON bodies and requests equal to those of openai's client, at less CPU time for each call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from gc import get_referents
from operator import attrgetter, is_
from types import FunctionType, NoneType
from typing import Any, ClassVar, NamedTuple, TypeVar

import openai
import orjson
from openai._models import FinalRequestOptions
from openai._types import NotGiven
from openai._utils import strip_not_given
from pydantic import BaseModel

from ..decode.probes import holds
from ..transport.drivers.requests import ROUTE, target_of
from ..transport.protocols.exchange import TransportError

T = TypeVar("T")

# Methods
#
# Applications override methods, and instrumentations replace them.

_PACKAGES = ("openai", "fastlane", "httpx2", "httpx")


class OwnMethods:
    """Checks whether methods and properties of classes are overridden or patched. A check takes microseconds."""

    def __init__(self, *owners: tuple[type[Any], Iterable[str]]) -> None:
        """`owners`: classes, each with the names of its methods.

        If a method calls the one that it overrides, name both classes. Names that a class does not have are ignored:
        versions of openai differ.
        """
        self._owners = [_Owner(owner, [name for name in names if hasattr(owner, name)]) for owner, names in owners]

    @property
    def are_own(self) -> bool:
        """Whether all of them are code of openai, its HTTP library or fastlane."""
        for owner in self._owners:
            found = owner.read(owner.kind)
            # By identity: an instrumentation's wrapper may compare equal to what it wraps.
            seen, were_own = owner.last
            if not seen or not all(map(is_, found, seen)):
                were_own = all(is_own(owner.kind, name) for name in owner.names)
                owner.last = (found, were_own)
            if not were_own:
                return False
        return True


class _Owner:
    def __init__(self, kind: type[Any], names: list[str]) -> None:
        self.kind = kind
        self.names = names
        self.read: Any = attrgetter(*names, "__class__", "__mro__")
        self.last: tuple[tuple[Any, ...], bool] = ((), False)
        """The last methods found and the verdict on them: one tuple, because threads share it."""


def is_own(owner: type[Any], name: str) -> bool:
    """Return whether a method or property of a class is code of openai, its HTTP library or fastlane."""
    base = next(base for base in owner.__mro__ if name in base.__dict__)
    found = base.__dict__[name]
    if type(found) is property:
        found = found.fget
    elif type(found) is staticmethod:
        found = found.__func__
    # Check the globals: a wrapper copies the name and module of what it wraps.
    return type(found) is FunctionType and str(found.__globals__.get("__name__")).partition(".")[0] in _PACKAGES


def no_override_is_between(client: type[Any], names: frozenset[str]) -> bool:
    """Return whether no class between fastlane's and openai's in the MRO defines one of these methods.

    In `class Mine(fastlane.OpenAI, Theirs)`, `Theirs` is such a class: openai's own code would call its methods.
    """
    packages = [base.__module__.partition(".")[0] for base in client.__mro__]
    behind = max((at for at, package in enumerate(packages) if package == "fastlane"), default=-1) + 1
    return all(
        package == "openai" or names.isdisjoint(vars(base))
        for base, package in zip(client.__mro__[behind:], packages[behind:], strict=True)
    )


# A call on its way from a resource of ours to `request()`


class Issued:
    """A call on its way from a resource of ours to `request()`."""

    __slots__ = ("body", "is_direct", "ns", "placements", "written")

    def __init__(self, ns: int, *, is_direct: bool) -> None:
        self.ns = ns
        """Monotonic nanoseconds at which the application issued it."""
        self.is_direct = is_direct
        """Whether no code between the resource and our client's `post()` can change the body."""
        self.body: dict[str, Any] | None = None
        self.written: bytes | None = None
        """The bytes of `body`, if they were written to check that it is plain JSON."""
        self.placements: tuple[Any, ...] | None = None
        """The declared placement of each message, or of each part of its content; None if nothing was declared."""


issued: ContextVar[Issued | None] = ContextVar("fastlane_issued", default=None)
"""The call that a resource of ours is issuing; None for a call without such a resource."""


# JSON bodies
#
# openai writes them with the standard library's encoder. orjson differs from it on values that the encoder refuses
# (NaN, enumerations, UUIDs, dataclasses), and in how it writes the exponents of floats. So its output is used only for
# plain JSON whose floats are all written alike. openai's function writes everything else.

PLAIN_TYPES = frozenset({dict, list, tuple, str, int, float, bool, NoneType})

# orjson's own limit of nesting.
_MAX_DEPTH = 255

# A value that contains itself twice doubles with each level: the walk stops at this number of members.
_MAX_MEMBERS = 1_000_000

# Have orjson refuse types that it would write differently. It always refuses keys that are not strings, surrogates and
# integers beyond 64 bits.
_STRICT_OPTIONS = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def is_plain(value: object, types: Collection[type] = PLAIN_TYPES) -> bool:
    """Return whether a value contains only exact `types`, keys included; False if it contains itself.

    Takes about 30 ns for each member: strings are not read.
    """
    try:
        return _floats(value, frozenset(types), _MAX_MEMBERS) is not None
    except Exception:  # noqa: BLE001 - openai's code handles such values
        return False


def stock_bytes(value: object, types: Collection[type] = PLAIN_TYPES) -> bytes | None:
    """Return exactly the bytes that `openai._utils._json.openapi_dumps` writes; None if that function has to be called.

    Also None if the value contains other than exact `types`.
    """
    try:
        # First, because orjson goes depth-first: it refuses a value that contains itself or is nested too deeply.
        text = orjson.dumps(value, option=_STRICT_OPTIONS)
        # Each member and each key takes at least a byte, so the text's length bounds their number.
        floats = _floats(value, frozenset(types), len(text))
        if floats is None:
            return None
        # NaN and infinity have a text of their own in both.
        return text if not floats or all(orjson.dumps(one) == repr(one).encode() for one in floats) else None
    except Exception:  # noqa: BLE001 - openai's function raises the error that the application expects
        return None


def longer_bytes(written: bytes, fields: Mapping[str, object]) -> bytes | None:
    """Return the bytes of an object with `fields` behind those of `written`; None if openai's code has to write it."""
    if not fields:
        return written
    more = stock_bytes(fields) if len(written) > len(b"{}") else None
    return b"".join((memoryview(written)[:-1], b",", memoryview(more)[1:])) if more else None


def has_float_beyond(value: object, bound: float) -> bool:
    """Return whether plain JSON contains a float of at least this size; True if it contains other types."""
    floats = _floats(value, PLAIN_TYPES, _MAX_MEMBERS)
    return floats is None or any(abs(one) >= bound for one in floats)


def _floats(value: object, types: frozenset[type], max_members: int) -> list[float] | None:
    """Return all floats inside a value; None if it contains any type but `types`.

    It goes level by level, in C code only. The referents of standard containers are their members and keys; strings and
    numbers have none. Other types are found before their referents are read, which would lead to their class.
    """
    level: list[object] = [value]
    floats: list[float] = []
    for _ in range(_MAX_DEPTH + 2):
        found = set(map(type, level))
        if not found <= types:
            return None
        if float in found:
            floats += [member for member in level if type(member) is float]
        level = get_referents(*level)
        if not level:
            return floats
        if len(level) > max_members:
            return None
    return None


def simplify(member: Any, stock: Callable[..., Any]) -> Any:
    """Convert a message that is an openai object, or a tool made from a model, as openai's function does."""
    if type(member) is dict:
        function: Any = member.get("function")
        return {**member, "function": dict(function)} if _is_tool_of_a_model(function) else member
    if _is_tool_of_a_model(member):
        return dict(member)
    if isinstance(member, BaseModel):
        try:
            # With the type `object` it converts as with each of the types that a message may have.
            return stock(member, object)
        except Exception:  # noqa: BLE001 - openai's function will raise it again later
            return member
    return member


def _is_tool_of_a_model(value: Any) -> bool:
    """Return whether this is openai's dictionary of a tool that was made from a pydantic model."""
    kind = type(value)
    return issubclass(kind, dict) and kind.__module__ == "openai.lib._tools"


# Options

_set = object.__setattr__

# The options that openai's resources pass besides the body.
_POST_OPTIONS = frozenset({
    "extra_json", "follow_redirects", "headers", "idempotency_key", "max_retries", "params", "post_parser", "security",
    "stream_mode", "synthesize_event_and_data", "timeout",
})  # fmt: skip


def post_options(path: str, body: Any, given: dict[str, Any], *, is_checked: bool = False) -> Any:
    """Return what `FinalRequestOptions.construct()` returns for a POST of a JSON body without files.

    `is_checked`: build the options here even if that was not compared with openai's code yet.
    """
    if not (is_checked or (_is_known() and given.keys() <= _POST_OPTIONS)):
        return FinalRequestOptions.construct(method="post", url=path, json_data=body, content=None, files=None, **given)
    values = dict(_Defaults.values)
    values["params"] = {}
    values["method"] = "post"
    values["url"] = path
    call = issued.get()
    # A body that was written already contains no `NotGiven`.
    values["json_data"] = body if call is not None and call.body is body else strip_not_given(body)
    fields_set = {"method", "url", "json_data", "content", "files"}
    for name, value in given.items():
        values[name] = strip_not_given(value)
        fields_set.add(name)
    options = FinalRequestOptions.__new__(FinalRequestOptions)
    _set(options, "__dict__", values)
    _set(options, "__pydantic_fields_set__", fields_set)
    _set(options, "__pydantic_extra__", None)
    _set(options, "__pydantic_private__", None)
    return options


def changed_options(options: T, changes: dict[str, Any]) -> T:
    """Return a copy of options with other values, as `model_copy(update=...)` does at half of the CPU time."""
    given: Any = options
    copied: T = object.__new__(type(options))
    _set(copied, "__dict__", {**given.__dict__, **changes})
    _set(copied, "__pydantic_fields_set__", given.__pydantic_fields_set__ | changes.keys())
    _set(copied, "__pydantic_extra__", given.__pydantic_extra__)
    _set(copied, "__pydantic_private__", given.__pydantic_private__)
    return copied


class _Defaults:
    values: ClassVar[dict[str, Any]] = {}


@cache
def _is_known() -> bool:
    return holds("openai.FinalRequestOptions", _is_as_expected)


def _is_as_expected() -> bool:
    """Return whether options made here equal those of the stock client."""
    given: dict[str, Any] = {"headers": {"a": "b"}, "timeout": 3.0}
    arguments: dict[str, Any] = {"method": "post", "url": "/x", "json_data": {"c": "d"}, "content": None, "files": None}
    stock = FinalRequestOptions.construct(**arguments)
    _Defaults.values = dict(stock.__dict__)
    if _Defaults.values["params"] != {}:
        return False
    for extra in ({}, given):
        stock = FinalRequestOptions.construct(**arguments, **extra)
        ours = post_options("/x", {"c": "d"}, extra, is_checked=True)
        names = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
        if any(getattr(stock, name) != getattr(ours, name) for name in names):
            return False
        if _described(stock) != _described(ours):
            return False
    return True


def _described(options: Any) -> list[tuple[str, Any]]:
    # `NotGiven` objects do not compare equal.
    return [(name, "not given" if type(value) is NotGiven else value) for name, value in options.__dict__.items()]


# Requests made from templates: URL, headers and timeouts of an earlier request, with another body

# Methods that determine a request, apart from its body. If any is overridden, openai's code builds the request.
_REQUEST_METHODS = (
    "_build_headers", "_prepare_url", "_validate_headers", "_enforce_trailing_slash", "_auth_headers", "_auth_query",
    "_bearer_auth", "_admin_api_key_auth", "auth_headers", "base_url", "default_headers", "default_query",
    "platform_headers", "qs", "user_agent",
)  # fmt: skip

# Methods that openai's loop calls around an attempt. Unless overridden, they do nothing for a plain call.
_LOOP_METHODS = (
    "_prepare_options", "_prepare_request", "_build_request", "_custom_auth", "custom_auth", "_maybe_override_cast_to",
    "_should_stream_response_body", "_idempotency_key", "_validate_max_retries", "_calculate_retry_timeout",
    "_send_request", "_process_response",
)  # fmt: skip

# An override may change the body after it was written.
_ENTRY_METHOD = "request"

_METHODS = frozenset({*_REQUEST_METHODS, *_LOOP_METHODS, _ENTRY_METHOD, "_process_response_data"})
_BYPASSED = _METHODS | {"post", "_send_with_auth_retry"}

_log = logging.getLogger("openai._base_client")

# Headers of a call that affect more than their own line.
_SPECIAL_HEADERS = frozenset({
    b"accept", b"authorization", b"connection", b"content-encoding", b"content-length", b"content-type", b"cookie",
    b"host", b"transfer-encoding", b"x-stainless-read-timeout", b"x-stainless-retry-count",
})  # fmt: skip

_RAW = b"x-stainless-raw-response"
_RETRY_COUNT, _CONTENT_LENGTH, _USER_AGENT = b"x-stainless-retry-count", b"content-length", b"user-agent"

# The attributes of a request of the HTTP library.
_ATTRIBUTES = {"method", "url", "headers", "extensions", "stream", "_content"}

_STOCK_CLASSES = (
    (openai.OpenAI, openai._base_client.SyncAPIClient),
    (openai.AsyncOpenAI, openai._base_client.AsyncAPIClient),
)

# Methods that our clients or openai's define above the base class. Instrumentations may replace them at any time.
_OVERRIDABLE = frozenset({
    "post", "request", "_build_request", "_process_response", "_process_response_data", "_send_request",
    "_send_with_auth_retry",
})  # fmt: skip

# How a call's own headers are sent: some versions of openai pass their names to the HTTP library in lower case.
_UNKNOWN, _NEVER, _AS_GIVEN, _LOWER_CASE = range(4)

# Limits of the caches. The calls of a client differ little besides their bodies and header names.
_MOST_TEMPLATES = 64
_MOST_SETS_OF_NAMES = 256

_Line = tuple[bytes, bytes, bytes]
"""A header as the library keeps it: its name as given, its name in lower case, its value."""


class _Template:
    """A request of the stock client without its body and without the headers of its call."""

    def __init__(self, request: Any, own: list[_Line], state: tuple[Any, ...]) -> None:
        self.state = state
        self._method, self._url = request.method, request.url
        self._timeout = request.extensions["timeout"]
        self._route = target_of(request)
        self._request_class: Any = type(request)
        self._headers_class: Any = type(request.headers)
        self._stream_class = type(request.stream)
        own_names = {line[1] for line in own}
        lines = [line for line in request.headers._list if line[1] not in own_names and line[1] != b"cookie"]
        names = [line[1] for line in lines]
        # The headers of a call come behind those of the client and before those of the attempt.
        at = names.index(_RETRY_COUNT)
        self._before = lines[:at]
        self._after = [line for line in lines[at:] if line[1] != _CONTENT_LENGTH]
        (self._content_length,) = (line[0] for line in lines if line[1] == _CONTENT_LENGTH)
        if _RAW in names or request.__dict__.keys() != _ATTRIBUTES:
            raise ValueError
        self.names = frozenset(names)
        self.verified: dict[tuple[bytes, ...], int] = {}
        """By the names of a call's own headers: the form in which a built request equals the stock client's."""

    def verify(self, wanted: _Wanted, body: bytes, cookies: Any, request: Any) -> bool:
        """Return whether a request built here equals the one of the stock client."""
        form = _NEVER
        lower = [line[1] for line in wanted.own]
        if len(set(lower)) == len(lower) and self.names.isdisjoint(lower):
            if _are_equal(self.fill(wanted, body, cookies, _AS_GIVEN), request):
                form = _AS_GIVEN
            elif _are_equal(self.fill(wanted, body, cookies, _LOWER_CASE), request):
                form = _LOWER_CASE
        if len(self.verified) >= _MOST_SETS_OF_NAMES:
            self.verified.clear()
        self.verified[wanted.names] = form
        return form != _NEVER

    def fill(self, wanted: _Wanted, body: bytes, cookies: Any, form: int = _UNKNOWN) -> Any:
        """Return the request of one attempt, with the cookies of its HTTP client.

        None if it has not been verified against the stock client's. A given `form` is not checked.
        """
        if form == _UNKNOWN:
            form = self.verified.get(wanted.names, _NEVER)
            if form == _NEVER or self.state != wanted.state:
                return None
        own = wanted.own if form == _AS_GIVEN else [(lower, lower, value) for _, lower, value in wanted.own]
        headers = self._headers_class.__new__(self._headers_class)
        headers._list = [*self._before, *own, *self._after]
        headers._encoding = None
        request = self._request_class.__new__(self._request_class)
        request.method = self._method
        request.url = self._url
        request.headers = headers
        request.extensions = {"timeout": dict(self._timeout), ROUTE: self._route}
        request.stream = self._stream_class(body)
        request._content = body
        if cookies.jar._cookies:
            cookies.set_cookie_header(request)
        headers._list.append((self._content_length, _CONTENT_LENGTH, b"%d" % len(body)))
        return request


class _Wanted(NamedTuple):
    """The properties of a request before it is built."""

    key: tuple[Any, ...]
    state: tuple[Any, ...]
    own: list[_Line]
    names: tuple[bytes, ...]


class Requests:
    """Builds the requests of one client from templates, or by openai's code. Threads may share it."""

    def __init__(self, client: type[Any]) -> None:
        self._templates: dict[Any, _Template] = {}
        self.platform: Any = None
        """What openai's asynchronous client looks up before its first request."""
        stock, base = _STOCK_CLASSES[issubclass(client, openai.AsyncOpenAI)]
        self._methods = OwnMethods(
            (client, _METHODS | _OVERRIDABLE), (stock, _OVERRIDABLE), (base, _METHODS | _OVERRIDABLE)
        )
        # Azure's client writes the model into the path, and sends other credentials.
        self._is_azure = issubclass(client, (openai.AzureOpenAI, openai.AsyncAzureOpenAI))
        self.bypasses_no_override = no_override_is_between(client, _BYPASSED)
        """Whether our path bypasses no method of an application's class that openai's code would call."""

    def are_stock(self, client: Any) -> bool:
        """Return whether openai's methods are not overridden or patched, so that they need not be called."""
        return self.bypasses_no_override and self._methods.are_own and _METHODS.isdisjoint(client.__dict__)

    @property
    def can_build(self) -> bool:
        """Whether requests can be built from templates, if `are_stock`."""
        # At DEBUG, openai's code logs the requests that it builds.
        return not (self._is_azure or _log.isEnabledFor(logging.DEBUG))

    def why_not(self, client: Any) -> list[str]:
        """Return the reasons why openai's code has to build the requests of a client; empty if there is none."""
        found = []
        replaced = _replaced_methods(client)
        if replaced:
            found.append(f"overridden by the application or patched by an instrumentation: {', '.join(replaced)}")
        if self._is_azure:
            found.append("openai's code sets the path and the key of an Azure client")
        if _log.isEnabledFor(logging.DEBUG):
            found.append("the logger openai._base_client is on at level DEBUG")
        return found

    def first(self, client: Any, options: Any, state: Any) -> Any:
        """Return the request of a first attempt, if openai's loop has nothing else to do before it; None otherwise.

        Only call this if `are_stock`.
        """
        retries = options.max_retries
        if isinstance(retries, openai.NotGiven):
            retries = 0
        if (
            not self.can_build
            or type(retries) is not int
            or retries < 0
            or type(client.max_retries) is not int
            or client.max_retries < 0
            or options.follow_redirects is not None
            or client._idempotency_header is not None
            or getattr(client, "_api_key_provider", self) is not None
            or (client._platform is None and client._asynchronous)
        ):
            return None
        body = state.body(options)
        wanted = None if body is None else _wanted(client, options, 0)
        if body is None or wanted is None:
            return None
        template = self._templates.get(wanted.key)
        return None if template is None else template.fill(wanted, body, client._client._cookies)

    def build(self, client: Any, options: Any, retries_taken: int, body: bytes, stock: Callable[[Any], Any]) -> Any:
        """Return the request of any attempt with the JSON `body`. `stock(client)` builds it by openai's code."""
        wanted = _wanted(client, options, retries_taken)
        if wanted is None:
            return stock(client)
        template = self._templates.get(wanted.key)
        request = None if template is None else template.fill(wanted, body, client._client._cookies)
        if request is not None:
            return request
        # Another thread may change the client's key meanwhile: learn from a consistent copy.
        still = object.__new__(type(client))
        still.__dict__.update(client.__dict__)
        wanted = _wanted(still, options, retries_taken)
        state = None if wanted is None else _snapshot(wanted.state)
        request = stock(still)
        if wanted is not None and state == wanted.state:
            self._learn(request, wanted._replace(state=state), body, still)
        return request

    def _learn(self, request: Any, wanted: _Wanted, body: bytes, client: Any) -> None:
        """Make a template from a request of the stock client, if the template gives the same request."""
        cookies = client._client._cookies
        try:
            template = self._templates.get(wanted.key)
            if template is not None and template.state == wanted.state:
                template.verify(wanted, body, cookies, request)
                return
            template = _Template(request, wanted.own, wanted.state)
            # If this call overrides a header of the client, the template would lack it in other calls.
            theirs = {name.lower().encode() for name in client.default_headers} | {b"authorization"}
            theirs.update(line[1] for line in client._client._headers._list)
            if theirs.isdisjoint(line[1] for line in wanted.own) and template.verify(wanted, body, cookies, request):
                if len(self._templates) >= _MOST_TEMPLATES:
                    self._templates.clear()
                self._templates[wanted.key] = template
        except TransportError:
            pass  # not an HTTP URL: the transport raises its own error
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # an unknown version of the library: openai's code builds every request


def build_request(client: Any, options: Any, state: Any, retries_taken: int) -> Any:
    """Build the request of an attempt, with the body that was written once for all attempts if possible."""
    requests = client._fastlane.requests
    body = None
    if requests.are_stock(client) and requests.can_build and not has_content_type(client, options):
        body = state.body(options)
    if body is None:
        return client._build_request(options, retries_taken=retries_taken)

    def build(still: Any) -> Any:
        # Pass the bytes, so that openai's code does not write the body again.
        encoded = changed_options(options, {"json_data": body, "extra_json": None})
        return still._build_request(encoded, retries_taken=retries_taken)

    return requests.build(client, options, retries_taken, body, build)


def share_requests(client: Any, copied: Any) -> None:
    """Share what a client knows of its requests with a copy that has only another timeout or number of retries."""
    requests = copied._fastlane.requests = client._fastlane.requests
    copied._platform = requests.platform


def _wanted(client: Any, options: Any, retries_taken: int) -> _Wanted | None:
    """Return the properties of a request; None if openai's code has to build it."""
    try:
        http, query, headers = client._client, client._custom_query, client._custom_headers
        if (
            options.params
            or http._params
            or client._idempotency_header is not None
            or getattr(client, "_provider_runtime", None) is not None
            # Equal strings are sent alike; other equal values (1 and True) are not.
            or (query and not all(type(value) is str for value in query.values()))
        ):
            return None
        if client._asynchronous:
            asyncio.get_running_loop()  # a header names the async library: under others openai's code builds it
        own = _lines(options.headers) if options.headers else []
        if own is None:
            return None
        # Agent frameworks replace this header of the client, always by the same value: it belongs to the template.
        user_agent = tuple([line for line in own if line[1] == _USER_AGENT]) if own else ()
        if user_agent:
            own = [line for line in own if line[1] != _USER_AGENT]
        timeout = client.timeout if isinstance(options.timeout, openai.NotGiven) else options.timeout
        parts = (
            timeout
            if timeout is None or type(timeout) in (int, float)
            else (timeout.connect, timeout.read, timeout.write, timeout.pool)
        )
        # The client's state that a request depends on: when it changes, the template is made again.
        state = (
            client._base_url,
            client.api_key,
            getattr(client, "admin_api_key", None),
            getattr(options, "security", None),
            client.organization,
            client.project,
            tuple(headers.items()) if headers else (),
            tuple(query.items()) if query else (),
            client._platform,
            http._headers._list,
        )
        # repr(): a timeout header has 5 or 5.0.
        key = (options.url, retries_taken, parts, repr(parts), user_agent)
        return _Wanted(key, state, own, tuple([line[0] for line in own]) if own else ())
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None


def body_of(options: Any) -> bytes | None:
    """Return the JSON body of a call as the stock client sends it; None if openai's code has to write it."""
    body = options.json_data
    if type(body) is not dict or options.method != "post" or options.content is not None or options.files is not None:
        return None
    extra = options.extra_json
    if extra is not None:
        if type(extra) is not dict:
            return None
        body = {**body, **extra}
    return stock_bytes(body)


def _replaced_methods(client: Any) -> list[str]:
    """Return the methods around a request that are not openai's own, such as "OpenAI.request"."""
    bases = type(client).__mro__
    last = max(at for at, base in enumerate(bases) if base.__module__.partition(".")[0] == "fastlane")
    found = {f"client.{name}" for name in _METHODS & client.__dict__.keys()}
    for at, base in enumerate(bases):
        # A class before ours can call ours with `super()`; a class after ours would be bypassed.
        names = _METHODS if at < last else _BYPASSED
        found |= {f"{base.__name__}.{name}" for name in names & vars(base).keys() if not is_own(base, name)}
    return sorted(found)


def has_content_type(client: Any, options: Any) -> bool:
    """Return whether a content-type header is given, for which openai may send another body than JSON."""
    given = [one for one in (options.headers, client._custom_headers) if isinstance(one, Mapping)]
    return any(name.lower() == "content-type" for headers in given for name in headers)


def _snapshot(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy the mutable parts of a state."""
    return tuple(type(part)(part) if isinstance(part, (dict, list)) else part for part in state)


def _lines(given: Any) -> list[_Line] | None:
    """Return the headers of a call as lines; None if any of them needs openai's code."""
    if type(given) is not dict:
        return None
    lines = []
    for name, value in given.items():
        if not name.isascii() or not value.isascii():  # what is no str raises: `_wanted` leaves it to openai's code
            return None
        raw = name.encode()
        lower = raw.lower()
        if lower in _SPECIAL_HEADERS or (lower == _RAW and value != "true"):  # another leaves the answer unread
            return None
        lines.append((raw, lower, value.encode()))
    return lines


def _are_equal(ours: Any, stock: Any) -> bool:
    try:
        return bool(
            ours.__dict__.keys() == stock.__dict__.keys()
            and ours.headers.__dict__.keys() == stock.headers.__dict__.keys()
            and ours.headers._list == stock.headers._list
            and (ours.method, ours.url, ours.extensions["timeout"])
            == (stock.method, stock.url, stock.extensions["timeout"])
            and stock.extensions.keys() == {"timeout"}
            and ours._content == stock._content
            and b"".join(ours.stream) == b"".join(stock.stream)
        )
    except (AttributeError, TypeError):
        return False
