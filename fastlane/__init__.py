"""A drop-in OpenAI client that makes calls to LLM APIs faster from the client's side."""

import sys
from abc import ABCMeta
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .compat import openai_types as _openai_types  # noqa: F401 - before anything imports openai

# isort: split
import openai

from . import plays as plays, telemetry as telemetry
from ._version import __version__ as __version__
from .client.clients import (
    AsyncAzureOpenAI as AsyncAzureOpenAI,
    AsyncOpenAI as AsyncOpenAI,
    AzureOpenAI as AzureOpenAI,
    OpenAI as OpenAI,
)
from .client.install import install as install, uninstall as uninstall
from .compat.openai_modules import OPENAI_MODULES, OpenAIModules
from .engine.call import Call as Call
from .engine.call_state import record_of as record_of
from .engine.play import Play as Play, Stage as Stage
from .engine.session import Session as Session
from .engine.user_action import user_action as user_action
from .errors import (
    BrokenStreamError as BrokenStreamError,
    CallRefusedError as CallRefusedError,
    ConfigurationError as ConfigurationError,
    FastlaneError as FastlaneError,
    InvalidOutputError as InvalidOutputError,
    MissingExtraError as MissingExtraError,
    PlayError as PlayError,
    QueueFullError as QueueFullError,
    QueueTimeoutError as QueueTimeoutError,
    ReceivedAnswer as ReceivedAnswer,
    StalledStreamError as StalledStreamError,
)
from .plays.urgency.level import urgency as urgency
from .records.record import CallRecord as CallRecord

if TYPE_CHECKING:
    # What type checkers are to know of openai's own names, which `__getattr__` below hands on.
    from openai import (
        DEFAULT_CONNECTION_LIMITS as DEFAULT_CONNECTION_LIMITS,
        DEFAULT_MAX_RETRIES as DEFAULT_MAX_RETRIES,
        DEFAULT_TIMEOUT as DEFAULT_TIMEOUT,
        NOT_GIVEN as NOT_GIVEN,
        APIConnectionError as APIConnectionError,
        APIError as APIError,
        APIResponseValidationError as APIResponseValidationError,
        APIStatusError as APIStatusError,
        APITimeoutError as APITimeoutError,
        AsyncStream as AsyncStream,
        AuthenticationError as AuthenticationError,
        BadRequestError as BadRequestError,
        BaseModel as BaseModel,
        ConflictError as ConflictError,
        ContentFilterFinishReasonError as ContentFilterFinishReasonError,
        DefaultAsyncHttpxClient as DefaultAsyncHttpxClient,
        DefaultHttpxClient as DefaultHttpxClient,
        InternalServerError as InternalServerError,
        InvalidWebhookSignatureError as InvalidWebhookSignatureError,
        LengthFinishReasonError as LengthFinishReasonError,
        NotFoundError as NotFoundError,
        NotGiven as NotGiven,
        Omit as Omit,
        OpenAIError as OpenAIError,
        PermissionDeniedError as PermissionDeniedError,
        RateLimitError as RateLimitError,
        RequestOptions as RequestOptions,
        Stream as Stream,
        Timeout as Timeout,
        UnprocessableEntityError as UnprocessableEntityError,
        file_from_path as file_from_path,
        omit as omit,
    )

    from . import (
        auth as auth,
        batch as batch,
        catalog as catalog,
        experiments as experiments,
        helpers as helpers,
        lib as lib,
        pagination as pagination,
        prompts as prompts,
        reports as reports,
        resources as resources,
        schemas as schemas,
        types as types,
    )
    from .plays import (
        BoundedOutput as BoundedOutput,
        Connection as Connection,
        ContextTrimming as ContextTrimming,
        Hedging as Hedging,
        PromptCache as PromptCache,
        RateLimits as RateLimits,
        Reproducible as Reproducible,
        RequestEncoding as RequestEncoding,
        ResponseSocket as ResponseSocket,
        Routing as Routing,
        Unbroken as Unbroken,
        Urgency as Urgency,
    )
    from .tools import (
        ToolCall as ToolCall,
        ToolResult as ToolResult,
        ToolRunner as ToolRunner,
        ToolTurn as ToolTurn,
        tool_calls as tool_calls,
    )

sys.meta_path.insert(0, OpenAIModules)

# openai's own second names.
Client = OpenAI
AsyncClient = AsyncOpenAI

# Loaded when they are first asked for, as the plays are: most applications use none of these modules.
_MODULES = frozenset({"batch", "catalog", "experiments", "prompts", "reports", "schemas"})
_TOOLS = frozenset({"ToolCall", "ToolResult", "ToolRunner", "ToolTurn", "tool_calls"})

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What else `from openai import …` gives, so that an app changes the name of the module and nothing else."""
        if name in _MODULES or name in OPENAI_MODULES:
            return import_module(f".{name}", __name__)
        if name in plays.__all__:
            return getattr(plays, name)
        if name in _TOOLS:
            return getattr(import_module(".tools", __name__), name)
        value = getattr(openai, name, None) if not name.startswith("_") else None
        # Classes and functions, also those that are missing in `__all__`. What configures the module-level client is
        # left out: setting it here would change nothing there. `type()`, because `isinstance` would make that client.
        if name in openai.__all__ or type(value) in (type, ABCMeta, FunctionType):
            return value
        if name in vars(openai) and not name.startswith("_"):
            raise AttributeError(
                f"module 'fastlane' has no attribute {name!r}: make a client with fastlane.OpenAI(), or call "
                f"fastlane.install() and use openai.{name}"
            )
        raise AttributeError(f"module 'fastlane' has no attribute {name!r}, and openai has none either")

    def __dir__() -> list[str]:
        return sorted({*__all__, *_MODULES, *OPENAI_MODULES, *openai.__all__})


__all__ = [
    "AsyncAzureOpenAI",
    "AsyncClient",
    "AsyncOpenAI",
    "AzureOpenAI",
    "BoundedOutput",
    "Call",
    "CallRecord",
    "CallRefusedError",
    "Client",
    "ConfigurationError",
    "Connection",
    "ContextTrimming",
    "FastlaneError",
    "Hedging",
    "InvalidOutputError",
    "MissingExtraError",
    "OpenAI",
    "Play",
    "PlayError",
    "PromptCache",
    "QueueFullError",
    "QueueTimeoutError",
    "RateLimits",
    "Reproducible",
    "RequestEncoding",
    "Routing",
    "Session",
    "Stage",
    "StalledStreamError",
    "ToolRunner",
    "Unbroken",
    "Urgency",
    "batch",
    "install",
    "record_of",
    "telemetry",
    "tool_calls",
    "uninstall",
    "urgency",
    "user_action",
]
