"""What a picture for the documentation has to show, and what it must not."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.backends._server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOO_LARGE = 200_000


def check(page: Page, picture: Path, server: Server, *texts: str) -> None:
    assert 20_000 < picture.stat().st_size < TOO_LARGE
    shown = page.locator("body").inner_text()
    for text in texts:
        assert text in shown
    for text in (str(server.directory), socket.gethostname(), str(Path.home())):
        assert text not in shown
