from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from scripts.servers import BROWSER_ARGUMENTS, UnavailableError, program


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        executable = program("chromium")
    except UnavailableError as error:
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(BROWSER_ARGUMENTS))
        yield browser
        browser.close()
