"""A backend's server leaves nothing behind."""

from __future__ import annotations

import pytest

from scripts.servers import Prometheus, UnavailableError, program


def test_server_that_is_stopped_leaves_nothing() -> None:
    try:
        program("prometheus")
    except UnavailableError as error:
        pytest.skip(str(error))
    with Prometheus([]) as server:
        assert server.query("up") == []
        directory = server.directory

    assert not directory.exists()
