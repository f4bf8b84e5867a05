"""An answer that is an error, in the shape in which OpenAI sends them."""

from __future__ import annotations

import json
from collections.abc import Sequence


class ApiError(Exception):
    """Stops the handling of a request; becomes its answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.headers = tuple(headers)

    def body(self) -> bytes:
        """Return the JSON of the answer."""
        error = {"message": str(self), "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()
