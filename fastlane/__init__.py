"""A drop-in OpenAI client that makes calls to LLM APIs faster from the client's side."""

import sys
from abc import ABCMeta
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

import openai

from . import telemetry as telemetry
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
from .engine.observation import record_of as record_of
from .engine.play import Play as Play, Stage as Stage
from .engine.urgency import urgency as urgency
from .engine.user_action import user_action as user_action
from .errors import (
    CallRefusedError as CallRefusedError,
    ConfigurationError as ConfigurationError,
    FastlaneError as FastlaneError,
    InvalidOutputError as InvalidOutputError,
    MissingExtraError as MissingExtraError,
    OutputAttempt as OutputAttempt,
    PlayError as PlayError,
    QueueFullError as QueueFullError,
    QueueTimeoutError as QueueTimeoutError,
)
from .records.attempts import Attempt as Attempt
from .records.encoding import RequestEncodingRecord as RequestEncodingRecord
from .records.output import BoundedOutputRecord as BoundedOutputRecord, RejectedAnswer as RejectedAnswer
from .records.prompt import (
    ContextTrimmingRecord as ContextTrimmingRecord,
    Cut as Cut,
    Drift as Drift,
    PromptCacheRecord as PromptCacheRecord,
)
from .records.provider_times import ProviderTimes as ProviderTimes
from .records.record import CallRecord as CallRecord
from .records.route import (
    Fallback as Fallback,
    HedgingRecord as HedgingRecord,
    RoutingCandidate as RoutingCandidate,
    RoutingRecord as RoutingRecord,
)
from .records.section import RecordSection as RecordSection
from .records.timeline import Timeline as Timeline, WireStamps as WireStamps
from .records.urgency import AdmissionRecord as AdmissionRecord, UrgencyRecord as UrgencyRecord
from .records.usage import Usage as Usage

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
        helpers as helpers,
        lib as lib,
        pagination as pagination,
        resources as resources,
        types as types,
    )
    from .experiments import Experiment as Experiment, Guard as Guard
    from .plays import (
        BoundedOutput as BoundedOutput,
        Connection as Connection,
        ContextTrimming as ContextTrimming,
        Hedging as Hedging,
        PromptCache as PromptCache,
        RequestEncoding as RequestEncoding,
        Routing as Routing,
        Urgency as Urgency,
    )
    from .plays.context_trimming.trimming import TrimmedContext as TrimmedContext, trim_context as trim_context
    from .plays.prompt_cache.prompts import (
        Prompt as Prompt,
        lint as lint,
        session as session,
        stable as stable,
        volatile as volatile,
    )
    from .plays.routing.catalog.models import (
        Catalog as Catalog,
        CatalogModel as CatalogModel,
        ModelPrice as ModelPrice,
        Task as Task,
    )
    from .plays.routing.catalog.route import Route as Route
    from .plays.routing.catalog.scores import Score as Score, score as score
    from .records.savings import Savings as Savings
    from .reports import Report as Report
    from .schemas.bound import Bound as Bound, Gap as Gap, bound as bound

sys.meta_path.insert(0, OpenAIModules)

# openai's own second names.
Client = OpenAI
AsyncClient = AsyncOpenAI

# What most applications do not use is loaded when it is first asked for.
_LATER = {
    "Bound": "schemas.bound",
    "Gap": "schemas.bound",
    "bound": "schemas.bound",
    "Catalog": "plays.routing.catalog.models",
    "CatalogModel": "plays.routing.catalog.models",
    "ModelPrice": "plays.routing.catalog.models",
    "Route": "plays.routing.catalog.route",
    "Score": "plays.routing.catalog.scores",
    "Task": "plays.routing.catalog.models",
    "score": "plays.routing.catalog.scores",
    "TrimmedContext": "plays.context_trimming.trimming",
    "Experiment": "experiments",
    "Guard": "experiments",
    "trim_context": "plays.context_trimming.trimming",
    "Prompt": "plays.prompt_cache.prompts",
    "Report": "reports",
    "Savings": "records.savings",
    "lint": "plays.prompt_cache.prompts",
    "session": "plays.prompt_cache.prompts",
    "stable": "plays.prompt_cache.prompts",
    "volatile": "plays.prompt_cache.prompts",
    "BoundedOutput": "plays",
    "Connection": "plays",
    "ContextTrimming": "plays",
    "Hedging": "plays",
    "PromptCache": "plays",
    "RequestEncoding": "plays",
    "Routing": "plays",
    "Urgency": "plays",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What else `from openai import …` gives, so that an app changes the name of the module and nothing else."""
        if name == "batch" or name in OPENAI_MODULES:
            return import_module(f".{name}", __name__)
        if name in _LATER:
            found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
            return found
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
        raise AttributeError(f"module 'fastlane' has no attribute {name!r}, and openai exports none")


__all__ = [
    "AdmissionRecord",
    "AsyncAzureOpenAI",
    "AsyncClient",
    "AsyncOpenAI",
    "Attempt",
    "AzureOpenAI",
    "Bound",
    "BoundedOutput",
    "BoundedOutputRecord",
    "Call",
    "CallRecord",
    "CallRefusedError",
    "Catalog",
    "CatalogModel",
    "Client",
    "ConfigurationError",
    "Connection",
    "ContextTrimming",
    "ContextTrimmingRecord",
    "Cut",
    "Drift",
    "Experiment",
    "Fallback",
    "FastlaneError",
    "Gap",
    "Guard",
    "Hedging",
    "HedgingRecord",
    "InvalidOutputError",
    "MissingExtraError",
    "ModelPrice",
    "OpenAI",
    "OutputAttempt",
    "Play",
    "PlayError",
    "Prompt",
    "PromptCache",
    "PromptCacheRecord",
    "ProviderTimes",
    "QueueFullError",
    "QueueTimeoutError",
    "RecordSection",
    "RejectedAnswer",
    "Report",
    "RequestEncoding",
    "RequestEncodingRecord",
    "Route",
    "Routing",
    "RoutingCandidate",
    "RoutingRecord",
    "Savings",
    "Score",
    "Stage",
    "Task",
    "Timeline",
    "TrimmedContext",
    "Urgency",
    "UrgencyRecord",
    "Usage",
    "WireStamps",
    "batch",
    "bound",
    "install",
    "lint",
    "record_of",
    "score",
    "session",
    "stable",
    "telemetry",
    "trim_context",
    "uninstall",
    "urgency",
    "user_action",
    "volatile",
]
