"""The emulator's own endpoints under /emulator/: read and clear the log, set the faults, change settings."""

from __future__ import annotations

import json

from fastlane.emulator._batches import Batches
from fastlane.emulator._errors import ApiError
from fastlane.emulator._exchange import Request
from fastlane.emulator._faults import Fault, FaultRules
from fastlane.emulator._provider import Provider

from ..errors import ConfigurationError


def control(provider: Provider, batches: Batches, request: Request) -> object:
    """Do what a control request asks and return its answer. Raises ApiError."""
    action = (request.method, request.path.removeprefix("/emulator/"))
    if action == ("GET", "log"):
        return [record.to_json() for record in provider.ledger.read()]
    if action == ("POST", "clear"):
        provider.ledger.clear()
        batches.clear_lines()
        return {"cleared": True}
    if action == ("POST", "forget"):
        provider.cache.clear()
        return {"forgotten": True}
    if action == ("PUT", "faults"):
        try:
            rules = [Fault.parse(text) for text in json.loads(request.body)]
        except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
            raise ApiError(400, str(error), code="invalid_fault") from error
        provider.faults = FaultRules(rules)
        return {"faults": [str(rule) for rule in rules]}
    if action == ("PUT", "settings"):
        try:
            provider.change(json.loads(request.body))
        except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
            raise ApiError(400, str(error), code="invalid_setting") from error
        return {"settings": provider.model.to_json()}
    if action == ("GET", "offline"):
        return batches.log().to_json()
    if action == ("DELETE", "offline"):
        batches.clear()
        return {"cleared": True}
    if action == ("PUT", "batches"):
        try:
            batches.change(batches.settings.changed(json.loads(request.body)))
        except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
            raise ApiError(400, str(error), code="invalid_setting") from error
        return {"batches": batches.settings.to_json()}
    raise ApiError(404, f"Invalid URL ({request.method} {request.path})", code="unknown_url")
