"""Pictures of backends' pages for the documentation, taken in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from scripts import browser
from scripts.backends._mlflow import MLflow
from scripts.backends._phoenix import Phoenix
from scripts.backends._spans import SeenSpan
from scripts.environments import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page, ViewportSize

    from scripts.prometheus_server import Prometheus

DIRECTORY = ROOT / "docs/images/telemetry"
_SIZE: ViewportSize = {"width": 1440, "height": 960}
_PATIENCE_MS = 60_000.0
_SETTLE_MS = 2_500.0
_QUIET = "*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent }"


@contextmanager
def page() -> Iterator[Page]:
    """A page of a browser of its own. Raises BrowserUnavailableError."""
    from playwright.sync_api import sync_playwright

    program = browser.program()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(browser.ARGUMENTS))
        try:
            made = running.new_page(viewport=_SIZE, color_scheme="light", reduced_motion="reduce", timezone_id="UTC")
            made.set_default_timeout(_PATIENCE_MS)
            yield made
        finally:
            running.close()


def phoenix_tree(page: Page, server: Phoenix, project: str, root: SeenSpan, *, selected: str) -> Path:
    """Phoenix's tree of one trace, with the second span of this name selected."""
    page.goto(f"{server.url}/projects/{server.project_id(project)}/traces/{root.trace_id}")
    tree = page.get_by_role("dialog")
    tree.get_by_text(selected, exact=True).nth(1).click()
    number = tree.get_by_text("fastlane.time_to_first_token", exact=True).locator("visible=true").first
    number.wait_for()
    # Selecting moves the tree, and a span under the pointer has a tip.
    page.mouse.move(1, 1)
    page.wait_for_timeout(_SETTLE_MS)
    number.scroll_into_view_if_needed()
    tree.get_by_text(root.name, exact=True).first.scroll_into_view_if_needed()
    return _saved(page, "phoenix_tree.png", _box(tree))


def mlflow_timeline(page: Page, server: MLflow, experiment_id: str, trace_id: str, *, selected: str) -> Path:
    """MLflow's timeline of one trace, with the second span of this name selected."""
    place = f"{server.url}/#/experiments/{experiment_id}/traces"
    page.goto(place)
    # Said to everybody who comes for the first time.
    page.get_by_role("button", name="Got it").click()
    page.goto(f"{place}?{urlencode({'selectedEvaluationId': trace_id})}")
    page.get_by_role("button", name="Full screen").click()
    page.get_by_role("button", name="Show execution timeline").click()
    timeline = page.get_by_role("dialog")
    timeline.get_by_text(selected, exact=True).locator("visible=true").nth(1).click()
    timeline.get_by_text("fastlane.", exact=False).first.wait_for()
    # The timeline is drawn narrow, and its names are cut off: move its edge.
    page.wait_for_timeout(_SETTLE_MS)
    box = _box(timeline.locator(".react-resizable").first)
    edge, middle = box["x"] + box["width"], box["y"] + box["height"] / 2
    page.mouse.move(edge, middle)
    page.mouse.down()
    page.mouse.move(edge + 480, middle, steps=5)
    page.mouse.up()
    return _saved(page, "mlflow_timeline.png")


def prometheus_graph(page: Page, server: Prometheus, expression: str, *, range_s: int) -> Path:
    """Prometheus' graph of an expression over the latest `range_s` seconds."""
    asked = {
        "g0.expr": expression,
        "g0.tab": "0",
        "g0.stacked": "0",
        "g0.range_input": f"{range_s}s",
        "g0.step_input": "1",
    }
    page.goto(f"{server.url}/graph?{urlencode(asked)}")
    page.locator("svg path, canvas").first.wait_for(state="attached")
    for field in page.locator("textarea").all():
        field.evaluate("it => { it.style.height = `${it.scrollHeight + 2}px` }")
    return _saved(page, "prometheus_graph.png")


def _box(element: Locator) -> FloatRect:
    box = element.bounding_box()
    assert box is not None, "what is to be in the picture is not on the page"
    return box


def _saved(page: Page, name: str, clip: FloatRect | None = None) -> Path:
    page.add_style_tag(content=_QUIET)
    page.wait_for_timeout(_SETTLE_MS)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    file = DIRECTORY / name
    page.screenshot(path=file, clip=clip)
    return file
