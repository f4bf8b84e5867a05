"""A drop-in OpenAI client that makes calls to LLM APIs faster from the client's side."""

from ._call import Attempt as Attempt
from ._call import Call as Call
from ._call import CallRecord as CallRecord
from ._call import Usage as Usage
from ._client import AsyncAzureOpenAI as AsyncAzureOpenAI
from ._client import AsyncOpenAI as AsyncOpenAI
from ._client import AzureOpenAI as AzureOpenAI
from ._client import OpenAI as OpenAI
from ._exceptions import ConfigurationError as ConfigurationError
from ._exceptions import FastlaneError as FastlaneError
from ._exceptions import MissingExtraError as MissingExtraError
from ._exceptions import PlayError as PlayError
from ._install import install as install
from ._install import uninstall as uninstall
from ._timeline import Timeline as Timeline
from ._timeline import WireStamps as WireStamps
from ._user_action import user_action as user_action
from .plays import Connection as Connection
from .plays import Play as Play
from .plays import Stage as Stage
from .plays import Watcher as Watcher

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
