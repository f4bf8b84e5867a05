"""The options of a call as openai's client hands them on, made without copying every default."""

from __future__ import annotations

from typing import Any, ClassVar

from openai._models import FinalRequestOptions
from openai._types import NotGiven
from openai._utils import strip_not_given

from ..decode import probes as _seams
from .context import issued

_set = object.__setattr__

# What openai's resources say of a call beside its body.
_GIVEN = frozenset({
    "extra_json", "follow_redirects", "headers", "idempotency_key", "max_retries", "params", "post_parser", "security",
    "stream_mode", "synthesize_event_and_data", "timeout",
})  # fmt: skip


def post_options(path: str, body: Any, given: dict[str, Any]) -> Any:
    """What `FinalRequestOptions.construct()` gives for a POST of a JSON body, without files."""
    if not _seams.holds("openai.FinalRequestOptions", _is_as_expected) or not given.keys() <= _GIVEN:
        return FinalRequestOptions.construct(method="post", url=path, json_data=body, content=None, files=None, **given)
    return _post_options(path, body, given)


def _post_options(path: str, body: Any, given: dict[str, Any]) -> Any:
    values = dict(_Defaults.values)
    values["params"] = {}
    security = values.get("security")
    if security is not None:
        values["security"] = dict(security)
    values["method"] = "post"
    values["url"] = path
    call = issued.get()
    # A body that was written already has nothing in it that is to be taken out.
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


def changed_options(options: FinalRequestOptions, changes: dict[str, Any]) -> FinalRequestOptions:
    """What `options.model_copy(update=changes)` gives: the options of a call with other values of some fields."""
    if (
        type(options) is not FinalRequestOptions
        or options.__pydantic_extra__ is not None
        or options.__pydantic_private__ is not None
    ):
        return options.model_copy(update=changes)
    copied = FinalRequestOptions.__new__(FinalRequestOptions)
    _set(copied, "__dict__", {**options.__dict__, **changes})
    _set(copied, "__pydantic_fields_set__", options.__pydantic_fields_set__ | changes.keys())
    _set(copied, "__pydantic_extra__", None)
    _set(copied, "__pydantic_private__", None)
    return copied


class _Defaults:
    values: ClassVar[dict[str, Any]] = {}


def _is_as_expected() -> bool:
    """Whether options made here are those of the stock client."""
    given: dict[str, Any] = {"headers": {"a": "b"}, "timeout": 3.0}
    arguments: dict[str, Any] = {"method": "post", "url": "/x", "json_data": {"c": "d"}, "content": None, "files": None}
    stock = FinalRequestOptions.construct(**arguments)
    _Defaults.values = dict(stock.__dict__)
    if _Defaults.values["params"] != {} or not isinstance(_Defaults.values.get("security", {}), dict):
        return False
    for extra in ({}, given):
        stock = FinalRequestOptions.construct(**arguments, **extra)
        ours = _post_options("/x", {"c": "d"}, extra)
        names = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
        if any(getattr(stock, name) != getattr(ours, name) for name in names):
            return False
        if _described(stock) != _described(ours):
            return False
    return True


def _described(options: Any) -> list[tuple[str, Any]]:
    # Each "not given" is an object of its own.
    return [(name, "not given" if type(value) is NotGiven else value) for name, value in options.__dict__.items()]
