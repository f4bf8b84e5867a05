"""Classes and constants of openai that its public modules do not export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai
from openai._base_client import AsyncAPIClient as AsyncAPIClient, SyncAPIClient as SyncAPIClient
from openai._constants import (
    OVERRIDE_CAST_TO_HEADER as OVERRIDE_CAST_TO_HEADER,
    RAW_RESPONSE_HEADER as RAW_RESPONSE_HEADER,
)
from openai._legacy_response import LegacyAPIResponse
from openai._models import FinalRequestOptions as FinalRequestOptions
from openai._response import BaseAPIResponse

if TYPE_CHECKING:
    from openai._data_residency import DataResidency as DataResidency
    from openai._provider import _Provider

    Provider = _Provider

SYNC_CLIENTS = (openai.OpenAI, SyncAPIClient)
"""The classes that define the methods of a sync client."""

ASYNC_CLIENTS = (openai.AsyncOpenAI, AsyncAPIClient)

RAW_RESPONSES = (LegacyAPIResponse, BaseAPIResponse)
"""What `with_raw_response` and `with_streaming_response` return."""
