from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fastlane.traces import entries, page as page_of, read_spans
from tests.pages.opening import Opens, ground, opening
from tests.traces.recorded import everyday, recording


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], Path]], Path]:
    @cache
    def write(make: Callable[[Path], Path]) -> Path:
        spans = make(tmp_path_factory.mktemp("pages") / f"{make.__name__}.jsonl")
        file = read_spans(spans.read_bytes(), spans.name)
        html = spans.with_suffix(".html")
        html.write_text(page_of(file, entries(file.spans)), encoding="utf-8")
        return html

    return write


@pytest.fixture
def opens(browser: Browser, pages: Callable[[Callable[[Path], Path]], Path]) -> Iterator[Opens]:
    with opening(browser, pages) as opens:
        yield opens


def hostile(path: Path) -> Path:
    with recording(path) as made:
        chat = made.chat(
            0, 300, model="</script><img src=x onerror=document.title='owned'>", error="<svg onload=alert(1)>"
        )
        made.span("<b>bold</b><script>document.title='owned'</script>", 1, 2, parent=chat)
    return path


def five_thousand(path: Path) -> Path:
    with recording(path) as made:
        for number in range(5_000):
            made.chat(number * 50, number * 50 + 300, fastlane__call__id=f"call-{number}")
    return path


def listed(page: Page) -> Locator:
    return page.get_by_role("listbox").get_by_role("option")


def test_trace_page_opens_with_list_and_summary(opens: Opens) -> None:
    page = opens(everyday)

    expect(listed(page)).to_have_count(6)
    opened = page.locator("#opened")
    expect(opened.get_by_role("heading", name="All entries")).to_be_visible()
    expect(opened).to_contain_text("Calls7Failed1")
    expect(opened.locator(".slowest button")).to_have_count(5)
    opened.locator(".slowest button").first.click()
    expect(page.get_by_role("heading", name="answer ticket")).to_be_visible()
    page.get_by_role("button", name="All entries").click()
    expect(opened.get_by_role("heading", name="All entries")).to_be_visible()


def test_entry_is_opened_with_its_waterfall(opens: Opens) -> None:
    page = opens(everyday)
    listed(page).first.click()

    expect(page.get_by_role("heading", name="answer ticket")).to_be_visible()
    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(25)
    expect(rows.nth(4)).to_have_accessible_name("POST, new connection, 361 ms, 42.0 ms after the start")
    expect(page.get_by_text("✕ 429")).to_be_visible()
    expect(listed(page).filter(has_text="AuthenticationError")).to_have_count(1)
    expect(page.locator("#opened")).to_contain_text("earlier attempts 282 ms")


def test_file_content_is_escaped_in_the_page(opens: Opens) -> None:
    page = opens(hostile)

    expect(page.get_by_role("treeitem").nth(1)).to_contain_text("<b>bold</b><script>document.title='owned'</script>")
    page.get_by_role("treeitem").first.click()
    expect(page.locator("#details")).to_contain_text("</script><img src=x onerror=document.title='owned'>")
    assert page.title() == "hostile.jsonl - fastlane trace"
    assert page.locator("img, svg, b >> text=bold").count() == 0


def test_trace_page_searches_by_words_and_attributes(opens: Opens) -> None:
    page = opens(everyday)
    options = listed(page)

    page.keyboard.press("/")
    page.keyboard.type("status_code=429")
    expect(options).to_have_count(1)
    expect(options).to_contain_text("answer ticket")
    expect(page.get_by_role("status")).to_have_text("1 of 6 entries")
    page.get_by_role("searchbox").fill("gpt-oss -answer")
    expect(options).to_have_count(4)
    page.get_by_role("searchbox").fill('"no such words"')
    expect(page.get_by_text("Nothing matches.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(options).to_have_count(6)


def test_trace_page_filters_and_sorts_entries(opens: Opens) -> None:
    page = opens(everyday)
    options = listed(page)

    page.get_by_role("button", name="Errors (3)").click()
    expect(options).to_have_count(3)
    page.keyboard.press("e")
    page.get_by_label("Order").select_option("Shortest first")
    expect(options.first).to_contain_text("31.0 ms")
    page.get_by_label("Order").select_option("Newest first")
    expect(options.first).to_contain_text("212 ms")


def test_trace_page_is_usable_by_keyboard(opens: Opens) -> None:
    page = opens(everyday)
    focused = page.locator(":focus")

    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("heading", level=2)).to_have_text("chat gpt-oss-120b")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(focused).to_have_accessible_name("invoke_workflow answer ticket, 1.06 s, 0 ms after the start")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem")).to_have_count(1)
    expect(focused).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("fastlane.attempt.outcome")
    expect(details).to_be_focused()
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    expect(focused).to_have_accessible_name("POST, new connection, 361 ms, 42.0 ms after the start")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def calls_of_which_one_missed(path: Path) -> Path:
    with recording(path) as made:
        made.chat(0, 400)
        made.chat(500, 900, fastlane__cache__mismatch_reason="timestamp", fastlane__cache__lost_tokens=1_666)
        made.chat(1_000, 1_400)
    return path


def test_cache_misses_have_badges_and_a_filter(opens: Opens) -> None:
    page = opens(calls_of_which_one_missed)
    expect(listed(page)).to_have_count(3)

    page.get_by_role("button", name="Cache misses (1)").click()

    expect(listed(page)).to_have_count(1)
    listed(page).click()
    badges = page.locator(".tag.miss")
    expect(badges).to_have_count(2)
    for badge in badges.all():
        expect(badge).to_have_text("cache miss: timestamp, about 1,666 tokens")
        expect(badge).to_be_visible()
    page.keyboard.press("m")
    expect(listed(page)).to_have_count(3)
    expect(opens(everyday).locator("#only-misses")).to_be_hidden()


def test_trace_page_fits_a_narrow_screen(opens: Opens) -> None:
    page = opens(everyday, width=400)

    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    expect(page.locator("#opened")).to_be_hidden()
    listed(page).nth(1).click()
    expect(page.get_by_role("tree")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("button", name="Back to the list").click()
    expect(listed(page).first).to_be_visible()


@pytest.mark.slow
def test_large_list_renders_only_visible_rows(opens: Opens) -> None:
    page = opens(five_thousand)

    expect(page.get_by_role("status")).to_have_text("5,000 entries")
    assert listed(page).count() < 60
    page.keyboard.press("End")
    expect(page.locator("#list [aria-selected=true]")).to_have_attribute("aria-posinset", "5000")
    page.keyboard.press("/")
    page.keyboard.type("call-4711")
    expect(page.get_by_role("status")).to_have_text("1 of 5,000 entries")
    # Twenty seconds is what a page may need before a reader would call it broken, on any machine.
    assert page.evaluate("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart") < 20_000


def test_printed_page_has_waterfall_without_controls(opens: Opens) -> None:
    page = opens(everyday, dark=True)
    listed(page).first.click()

    page.emulate_media(media="print")

    expect(page.get_by_role("tree")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_be_hidden()
    assert ground(page) == "rgb(255, 255, 255)"
