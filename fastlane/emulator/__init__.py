"""An OpenAI-compatible provider on loopback that writes down what it really did."""

from fastlane.emulator._emulator import Emulator
from fastlane.emulator._faults import Fault
from fastlane.emulator._log import BatchLog, FileLog, LineLog, Offline, RequestLog, prompt_digest
from fastlane.emulator._server import Server
from fastlane.emulator.settings import (
    STANDARD_TIERS,
    BatchSettings,
    Dialect,
    KeyRateLimits,
    ProviderModel,
    Quantiles,
    ServiceTier,
    preset,
    presets,
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
