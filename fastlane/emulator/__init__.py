"""An OpenAI-compatible provider on loopback that writes down what it really did."""

from fastlane.emulator._emulator import Emulator as Emulator
from fastlane.emulator._faults import Fault as Fault
from fastlane.emulator._log import (
    BatchLog as BatchLog,
    FileLog as FileLog,
    LineLog as LineLog,
    Offline as Offline,
    RequestLog as RequestLog,
    prompt_digest as prompt_digest,
)
from fastlane.emulator._server import Server as Server
from fastlane.emulator.settings import (
    STANDARD_TIERS as STANDARD_TIERS,
    BatchSettings as BatchSettings,
    Dialect as Dialect,
    KeyRateLimits as KeyRateLimits,
    ProviderModel as ProviderModel,
    Quantiles as Quantiles,
    ServiceTier as ServiceTier,
    preset as preset,
    presets as presets,
)

__all__ = [
    "STANDARD_TIERS",
    "BatchLog",
    "BatchSettings",
    "Dialect",
    "Emulator",
    "Fault",
    "FileLog",
    "KeyRateLimits",
    "LineLog",
    "Offline",
    "ProviderModel",
    "Quantiles",
    "RequestLog",
    "Server",
    "ServiceTier",
    "preset",
    "presets",
    "prompt_digest",
]
