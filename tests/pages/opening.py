"""Pages in a browser: each opened in a window of its own, offline, and expected to log nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

Opens = Callable[..., Page]


@contextmanager
def opening(browser: Browser, path_of: Callable[[Any], Path]) -> Iterator[Opens]:
    """Open pages in separate windows; at the end, check that they have requested nothing and logged no error."""
    console: list[str] = []
    contexts = []

    def open_page(what: Any, *, width: int = 1_280, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        path = path_of(what)
        page.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: console.append(str(error)))
        page.on("request", lambda request: console.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert console == []


def ground(page: Page) -> str:
    """Return the colour of a page's background."""
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
