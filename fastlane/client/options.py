"""The arguments of the clients' constructors and `copy()`, only for editors and type checkers.

A contract test compares openai's names with `inspect.signature` of the installed openai.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict

import httpx2
from openai import NotGiven, Timeout
from openai.auth import WorkloadIdentity, X509WorkloadIdentity

from ..compat.clients import DataResidency, Provider
from ..engine.pipeline import OnCallEnd
from ..experiments import Experiment
from ..plays import Play


class _OwnOptions(TypedDict, total=False):
    plays: Iterable[Play] | None
    only_plays: Iterable[Play] | None
    on_call_end: OnCallEnd | Iterable[OnCallEnd] | None
    raise_play_errors: bool
    experiment: Experiment | None
    proxy: str | httpx2.URL | httpx2.Proxy | Literal[False] | None


class _CommonOptions(TypedDict, total=False):
    admin_api_key: str | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    websocket_base_url: str | httpx2.URL | None
    timeout: float | Timeout | NotGiven | None
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None
    workload_identity: WorkloadIdentity | X509WorkloadIdentity | None


class _ConstructorOptions(_OwnOptions, _CommonOptions, total=False):
    max_retries: int
    _strict_response_validation: bool
    _enforce_credentials: bool


class _OpenAIOnlyOptions(_ConstructorOptions, total=False):
    provider: Provider | None
    base_url: str | httpx2.URL | NotGiven | None
    data_residency: DataResidency | None


class OpenAIOptions(_OpenAIOnlyOptions, total=False):
    """Arguments of `openai.OpenAI`."""

    api_key: str | Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncOpenAIOptions(_OpenAIOnlyOptions, total=False):
    """Arguments of `openai.AsyncOpenAI`."""

    api_key: str | Callable[[], Awaitable[str]] | None
    http_client: httpx2.AsyncClient | None


class _AzureOnlyOptions(_ConstructorOptions, total=False):
    api_version: str | None
    azure_endpoint: str | None
    azure_deployment: str | None
    azure_ad_token: str | None
    base_url: str | None


class AzureOpenAIOptions(_AzureOnlyOptions, total=False):
    """Arguments of `openai.AzureOpenAI`."""

    api_key: str | Callable[[], str] | None
    azure_ad_token_provider: Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncAzureOpenAIOptions(_AzureOnlyOptions, total=False):
    """Arguments of `openai.AsyncAzureOpenAI`."""

    api_key: str | Callable[[], Awaitable[str]] | None
    azure_ad_token_provider: Callable[[], str | Awaitable[str]] | None
    http_client: httpx2.AsyncClient | None


class CopyOptions(_CommonOptions, total=False):
    """Arguments of `copy()` and `with_options()`; only Azure clients take the Azure ones."""

    api_key: str | Callable[[], Any] | None
    http_client: Any
    max_retries: int | NotGiven
    provider: Provider | NotGiven | None
    base_url: str | httpx2.URL | NotGiven | None
    data_residency: DataResidency | None
    set_default_headers: Mapping[str, str] | None
    set_default_query: Mapping[str, object] | None
    api_version: str | None
    azure_ad_token: str | None
    azure_ad_token_provider: Callable[[], Any] | None
    _enforce_credentials: bool | None
