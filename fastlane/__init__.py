"""A drop-in OpenAI client that makes calls to LLM APIs faster from the client's side."""

from ._call import Attempt as Attempt, Call as Call, CallRecord as CallRecord, Usage as Usage
from ._client import (
    AsyncAzureOpenAI as AsyncAzureOpenAI,
    AsyncOpenAI as AsyncOpenAI,
    AzureOpenAI as AzureOpenAI,
    OpenAI as OpenAI,
)
from ._exceptions import (
    ConfigurationError as ConfigurationError,
    FastlaneError as FastlaneError,
    MissingExtraError as MissingExtraError,
    PlayError as PlayError,
)
from ._install import install as install, uninstall as uninstall
from ._timeline import Timeline as Timeline, WireStamps as WireStamps
from ._user_action import user_action as user_action
from .plays import Connection as Connection, Play as Play, Stage as Stage, Watcher as Watcher

__version__ = "0.1.0"

__all__ = [
    "AsyncAzureOpenAI",
    "AsyncOpenAI",
    "Attempt",
    "AzureOpenAI",
    "Call",
    "CallRecord",
    "ConfigurationError",
    "Connection",
    "FastlaneError",
    "MissingExtraError",
    "OpenAI",
    "Play",
    "PlayError",
    "Stage",
    "Timeline",
    "Usage",
    "Watcher",
    "WireStamps",
    "install",
    "uninstall",
    "user_action",
]
