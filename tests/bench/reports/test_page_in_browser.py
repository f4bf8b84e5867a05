from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fastlane.bench import RecordedRun
from tests.bench.recorded_runs import a_run, saturated
from tests.bench.reports.made import a_sweep, written
from tests.pages.opening import Opens, ground, opening

PHONE = 390

# Text on the page, chart labels included, that stands out from its ground by less than 4.5 (WCAG 2.2, 1.4.3).
FAINT = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getClientRects().length || element.closest("script, .skip")) continue;
    const style = getComputedStyle(element);
    const drawn = element instanceof SVGElement;
    const [r, g, b] = parse(drawn ? style.fill : style.color);
    // Figures on filled bars stand on the bar, which no element contains.
    const onBar = drawn && /^-?[\\d.,]+$/.test(element.textContent) && style.fontWeight === "600";
    const [one, other] = [light([r, g, b]), light(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5 && !onBar) found.add(contrast.toFixed(2) + " " + element.textContent.slice(0, 40));
  }
  return [...found];
}"""


def ab() -> tuple[str, RecordedRun]:
    return "ab", a_run(arms=("baseline", "baseline-again", "wire", "everything"), pairs=80, spread=0.2)


def one_pair() -> tuple[str, RecordedRun]:
    return "ab", a_run(pairs=80, spread=0.2)


def load() -> tuple[str, RecordedRun]:
    return "sweep", saturated(a_sweep(arms=("baseline", "fastlane"), users=(1, 10, 20), pairs=12), "chat, 10")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Any]], Path]:
    @cache
    def write(make: Callable[[], Any]) -> Path:
        kind, run = make()
        path = tmp_path_factory.mktemp("pages") / "page.html"
        path.write_text(written(run, ".html", "--kind", kind), encoding="utf-8")
        return path

    return write


@pytest.fixture
def opens(browser: Browser, pages: Callable[[Callable[[], Any]], Path]) -> Iterator[Opens]:
    with opening(browser, pages) as opens:
        yield opens


@pytest.mark.parametrize("width", [1_280, PHONE])
@pytest.mark.parametrize("make", [ab, load])
@pytest.mark.slow
def test_every_chart_is_drawn_within_window_width(opens: Opens, make: Callable[[], Any], width: int) -> None:
    page = opens(make, width=width)

    charts = page.locator("figure.chart .view")
    expect(charts.locator("svg")).to_have_count(charts.count())
    assert charts.count() >= 4
    for chart in charts.all():
        box = chart.locator("svg").bounding_box()
        assert box is not None
        assert box["height"] > 60
        assert width / 2 < box["width"] <= width
        assert chart.locator("svg path").count() > 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_verdict_and_waterfall_are_above_the_fold(opens: Opens) -> None:
    page = opens(one_pair)

    tile = page.locator("#answer .tile")
    expect(tile).to_have_count(1)
    expect(tile).to_contain_text("time to first token")
    assert tile.get_by_text("faster").count() == 3
    first = page.locator("figure.chart").first
    expect(first).to_have_attribute("data-chart", "waterfall")
    box = first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800
    assert page.locator("table:visible").count() == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("make", [ab, load])
def test_all_text_can_be_read_in_light_and_in_dark(opens: Opens, make: Callable[[], Any], dark: bool) -> None:
    page = opens(make, dark=dark)
    for folded in page.locator("details").all():
        folded.evaluate("each => { each.open = true; }")
    assert page.evaluate(FAINT) == []


def test_charts_and_page_follow_system_and_chosen_theme(opens: Opens) -> None:
    light, dark = opens(ab), opens(ab, dark=True)
    for page in (light, dark):
        expect(page.locator(".chart svg text").first).to_be_visible()
    line = "getComputedStyle(document.querySelector('.chart svg text')).fill"
    bright, dim = (ground(light), light.evaluate(line)), (ground(dark), dark.evaluate(line))
    assert bright[0] != dim[0]
    assert bright[1] != dim[1]

    light.keyboard.press("Tab")
    light.keyboard.press("Tab")
    expect(light.locator(":focus")).to_have_text("Theme: auto")
    light.keyboard.press("Enter")
    expect(light.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert (ground(light), light.evaluate(line)) == dim
    dark.keyboard.press("t")
    assert (ground(dark), dark.evaluate(line)) == bright


def test_hovering_a_mark_shows_its_tooltip(opens: Opens) -> None:
    page = opens(ab)
    tip = page.locator("#vg-tooltip-element")

    bar = page.locator("[data-chart=waterfall] svg").first.locator(".mark-rect path").last
    bar.hover(position={"x": 8, "y": 4})
    expect(tip).to_contain_text("generation")
    expect(tip).to_contain_text("mean of 80 requests")
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()


def test_long_table_is_sorted_by_keys_and_put_back(opens: Opens) -> None:
    page = opens(load)
    for folded in page.locator("details").all():
        folded.evaluate("each => { each.open = true; }")
    table = page.locator("table[data-sortable]").filter(has=page.get_by_text("p50")).first
    heads = table.locator("thead th")
    at = next(index for index, text in enumerate(heads.all_inner_texts()) if text.startswith("p50"))

    def column() -> list[str]:
        rows = table.locator("tbody tr").all()
        return [text for row in rows if (text := row.locator("td").nth(at).inner_text())]

    written = column()
    press = heads.nth(at).get_by_role("button")
    press.press("Enter")
    figures = [float(text.split(" [")[0].replace(",", "")) for text in column()]
    assert figures == sorted(figures)
    assert "invalid" in table.locator("tbody tr").last.inner_text()
    press.press("Enter")
    expect(heads.nth(at)).to_have_attribute("aria-sort", "descending")
    press.press("Enter")
    assert column() == written
