"""The pictures of the documentation are taken of what was just sent, and show nothing of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.backends import _pictures as pictures
from scripts.backends._application import MODEL
from scripts.backends._mlflow import MLflow
from scripts.backends._phoenix import Phoenix
from scripts.backends._spans import SeenSpan
from tests.backends.kept import Kept
from tests.backends.shown import check

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(600)


def conversation(kept: Kept) -> SeenSpan:
    """The first one."""
    return next(root for root in kept.phases.spans.roots if root.name.endswith(" conversation"))


def test_phoenix_shows_a_conversation_as_a_tree(page: Page, phoenix: Kept) -> None:
    server = phoenix.server
    assert isinstance(server, Phoenix)

    picture = pictures.phoenix_tree(page, server, phoenix.place, conversation(phoenix), selected=f"chat {MODEL}")

    check(page, picture, server, "HTTP wait_for_response", "DNS lookup", "fastlane.time_to_first_token")


def test_mlflow_shows_a_conversation_as_a_waterfall(page: Page, mlflow: Kept) -> None:
    server = mlflow.server
    assert isinstance(server, MLflow)

    trace_id = f"tr-{conversation(mlflow).trace_id}"
    picture = pictures.mlflow_timeline(page, server, mlflow.place, trace_id, selected=f"chat {MODEL}")

    check(page, picture, server, "HTTP wait_for_response", "TLS client handshake", "fastlane.time_to_first_token")
