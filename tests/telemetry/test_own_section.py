"""A custom play adds a section to records, and telemetry and reports show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, assert_type

import pytest

from fastlane import Call, OpenAI
from fastlane.records import CallRecord, Figure, Ledger, Measure, Metric, RecordSection
from tests.session_play import SessionPlay
from tests.telemetry.conftest import Listening

QUESTION: Any = {"model": "m", "messages": [{"role": "user", "content": "Name three colours."}]}
WORDS = Metric("app.words", "counter", "{word}", "Words of prompts")


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsRecord(RecordSection):
    """How many words a prompt has."""

    name: ClassVar[str] = "counted_words"
    metrics = (WORDS,)
    figures = {"words_counted": Figure("{word}", "measured", "words counted")}  # noqa: RUF012

    words: int
    language: str

    def attributes(self) -> dict[str, Any]:
        return {"app.words": self.words}

    @property
    def optimizations(self) -> tuple[str, ...]:
        return ("word_count",)

    def labels(self) -> dict[str, str]:
        return {"app.language": self.language}

    def measures(self) -> Iterator[Measure]:
        yield Measure(WORDS, self.words, {"app.length": "short"})

    def savings(self, record: CallRecord) -> dict[str, Any]:
        return {"words_counted": self.words, "not_declared": 1}

    @classmethod
    def effect(cls, records: Sequence[CallRecord], ledger: Ledger) -> str:
        total = ledger.total("words_counted")
        return f"{0 if total is None else total.value} words on {len(records)} calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWords(SessionPlay):
    """Counts the words of prompts."""

    section = WordsRecord

    def plan(self, call: Call) -> Call:
        words = sum(len(message["content"].split()) for message in call.body["messages"])
        return call.with_data(WordsRecord(words=words, language="en"))


def adding(made: RecordSection) -> SessionPlay:
    """A play that adds this section to every record."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Adding(SessionPlay):
        section = type(made)

        def plan(self, call: Call) -> Call:
            return call.with_data(made)

    return Adding()


def test_custom_play_section_is_in_record_span_metric_report(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening()
    with OpenAI(**arguments, plays=[CountedWords()]) as client:
        for _ in range(2):
            client.chat.completions.create(**QUESTION)
        record, report = client.calls[-1], client.report()

    section = record.get(WordsRecord)
    assert_type(section, WordsRecord | None)
    assert section == WordsRecord(words=3, language="en")
    data = record.to_dict()
    assert data["counted_words"] == {"words": 3, "language": "en"}
    assert data["savings"]["words_counted"] == {"value": 3, "unit": "{word}", "basis": "measured"}
    assert "not_declared" not in data["savings"]

    attributes = captured.named("chat")[-1].attributes
    assert attributes is not None
    assert attributes["app.words"] == 3
    assert "word_count" in attributes["fastlane.optimizations"]  # type: ignore[operator]

    points = captured.points()
    (point,) = points["app.words"]
    assert (point.value, point.attributes["app.length"], point.attributes["app.language"]) == (6, "short", "en")
    assert {one.attributes["app.language"] for one in points["fastlane.client.attempts"]} == {"en"}

    (played,) = [one for one in report.plays if one.play == "CountedWords"]
    assert (played.on, played.acted, played.effect) == (2, 2, "6 words on 2 calls")
    assert "words counted" in str(report)


@pytest.mark.parametrize(("level", "count"), [("call", 25), ("attempts", 40)])
def test_span_of_a_call_has_25_attributes_by_default(
    arguments: dict[str, Any], listening: Listening, level: str, count: int
) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class LongRecord(RecordSection):
        name: ClassVar[str] = "long"

        def attributes(self) -> dict[str, Any]:
            return {f"fastlane.long.{number}": number for number in range(40)}

    captured = listening(level=level)
    with OpenAI(**arguments, plays=[adding(LongRecord())]) as client:
        client.chat.completions.create(**QUESTION)
    names = [name for name in captured.the("chat").attributes or {} if name.startswith("fastlane.")]
    assert "fastlane.api_end_to_end.duration" in names
    assert (len(names) == count) if level == "call" else (len(names) > count)


def test_play_defined_after_the_first_metric_is_measured(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening()
    late = Metric("app.late", "histogram", "s", "Of a play that is defined later", (0.1, 1.0))
    with OpenAI(**arguments) as client:
        client.chat.completions.create(**QUESTION)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LateRecord(RecordSection):
        name: ClassVar[str] = "late"
        metrics = (late,)

        def measures(self) -> Iterator[Measure]:
            yield Measure(late, 0.5)

    with OpenAI(**arguments, plays=[adding(LateRecord())]) as client:
        client.chat.completions.create(**QUESTION)

    (point,) = captured.points()["app.late"]
    assert (point.count, point.sum) == (1, 0.5)


def test_section_that_raises_leaves_the_span_of_the_call(
    arguments: dict[str, Any], listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class RaisingRecord(RecordSection):
        name: ClassVar[str] = "raising"

        def attributes(self) -> dict[str, Any]:
            raise KeyError("secret")

    captured = listening()
    with OpenAI(**arguments, plays=[adding(RaisingRecord())], raise_play_errors=True) as client:
        for _ in range(2):
            client.chat.completions.create(**QUESTION)

    assert [span.attributes["gen_ai.usage.output_tokens"] > 0 for span in captured.named("chat") if span.attributes]  # type: ignore[operator]
    assert len(captured.named("chat")) == 2
    assert [line for line in caplog.messages if "RaisingRecord raised KeyError" in line] == [
        "RaisingRecord raised KeyError; spans lack its attributes (logged once)"
    ]
