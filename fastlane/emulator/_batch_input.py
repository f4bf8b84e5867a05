"""Reads a batch's input file line by line, and finds what is wrong with it as OpenAI does before it begins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastlane.emulator._endpoints import prompt_tokens
from fastlane.emulator._files import StoredFile

RESOURCES: Mapping[str, str] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat/completions",
    "/v1/embeddings": "embeddings",
    "/v1/completions": "completions",
}
"""The endpoints that batches can be of, and what answers them."""
# The emulator's own bound: a batch of wrong lines would otherwise tell of each of them whenever it is asked for.
_MOST_ERRORS = 100
_DUPLICATE = (
    "The custom_id for this request is a duplicate of another request. The custom_id parameter must be unique for "
    "each request in a batch."
)


class BatchInputLine(NamedTuple):
    """One request of a batch: its name, and where it stands in the file."""

    custom_id: str
    start: int
    end: int


@dataclass(slots=True)
class Input:
    """What is known of an input file after all of it was read."""

    file: StoredFile
    endpoint: str
    count_tokens: bool
    lines: list[BatchInputLine] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    tokens: int = 0
    _names: set[str] = field(default_factory=set)

    def read(self) -> Iterator[None]:
        """Read the file, one line for each step."""
        content, at, number = self.file.content, self.file.start, 0
        while at < self.file.end:
            number += 1
            end = content.find(b"\n", at, self.file.end)
            end = self.file.end if end < 0 else end
            # A last line that is empty is the end of the one before; in between it is no request.
            if content[at:end].strip():
                self._line(number, at, end)
                yield
            at = end + 1
        if not self.lines and not self.errors:
            message = "The batch input file is empty. Please ensure that the batch contains at least one request."
            self.fail("empty_file", message, None)

    def body(self, line: BatchInputLine) -> dict[str, Any]:
        """Return a line's request."""
        body: dict[str, Any] = json.loads(self.file.content[line.start : line.end])["body"]
        return body

    def fail(self, code: str, message: str, line: int | None, param: str | None = None) -> None:
        """Note an error."""
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append({"code": code, "line": line, "message": message, "param": param})

    def _line(self, number: int, start: int, end: int) -> None:
        try:
            request = json.loads(self.file.content[start:end])
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            self.fail("invalid_json_line", "This line is not parseable as valid JSON.", number)
            return
        for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
            if name not in request:
                self.fail("missing_required_parameter", f"Missing required parameter: '{name}'.", number, name)
                return
            if not isinstance(request[name], kind) or not request[name]:
                self.fail("invalid_type", f"Invalid type for '{name}'.", number, name)
                return
        if request["method"] != "POST":
            self.fail("invalid_method", "The HTTP method of a request in a batch must be POST.", number, "method")
        if request["url"] != self.endpoint:
            message = "The URL provided for this request does not match the batch endpoint."
            self.fail("url_mismatch", message, number, "url")
        if request["custom_id"] in self._names:
            self.fail("duplicate_custom_id", _DUPLICATE, number, "custom_id")
        self._check_model(request["body"].get("model"), number)
        self._names.add(request["custom_id"])
        self.lines.append(BatchInputLine(request["custom_id"], start, end))
        if self.count_tokens:
            self.tokens += prompt_tokens(RESOURCES[self.endpoint], request["body"])

    def _check_model(self, model: object, number: int) -> None:
        if not isinstance(model, str):
            self.fail("missing_required_parameter", "Missing required parameter: 'body.model'.", number, "body.model")
        elif self.model is None:
            self.model = model
        elif model != self.model:
            message = "The model of this request does not match the rest of the batch: a batch has a single model."
            self.fail("model_mismatch", message, number, "body.model")
