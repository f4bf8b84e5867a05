from __future__ import annotations

import json

from fastlane.doctor._findings import ProviderFinding
from fastlane.doctor._model import StreamedAnswer, StreamEvent, judge_stream

MS = 1_000_000


def event(**document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def text(content: str) -> bytes:
    return event(choices=[{"delta": {"content": content}}])


ROLE = event(choices=[{"delta": {"role": "assistant", "content": ""}}])
USAGE = event(choices=[], usage={"completion_tokens": 6})
DONE = b"data: [DONE]\n\n"
WHOLE = b": waiting\n\n" + ROLE + text("né") + text("three") + USAGE + DONE


def streamed(*pieces: tuple[int, bytes], broke_off: str | None = None) -> StreamedAnswer:
    events = [
        StreamEvent(at_ms * MS, len(line) + 2, line.removeprefix(b"data: ").decode())
        for at_ms, data in pieces
        for line in data.split(b"\n\n")
        if line.startswith(b"data:")
    ]
    return StreamedAnswer(events=events, broken_off=broke_off)


def judged(streamed: StreamedAnswer) -> dict[str, ProviderFinding]:
    return {finding.looked_at: finding for finding in judge_stream(streamed)}


def test_healthy_stream_has_no_notable_finding() -> None:
    found = judged(streamed((40, ROLE + text("a")), (50, text("b")), (60, text("c")), (61, USAGE + DONE)))

    assert {finding.state for finding in found.values()} == {"seen"}
    assert found["first token"].value["ms"] == 40
    assert found["chunks"].value["tokens_per_event"] == 2
    assert found["chunks"].value["gap_p50_ms"] == 10
    assert found["token counts"].facts[0].path == ("parameters", "stream_options.include_usage")


def test_stream_in_bundles_is_notable() -> None:
    bundles = [(at, b"".join(text("a") for _ in range(8))) for at in (50, 150, 250)]

    assert found_state(*bundles) == "notable"
    assert found_state(*((at, text("a")) for at in range(50, 250, 10))) == "seen"


def found_state(*pieces: tuple[int, bytes]) -> str:
    return judged(streamed(*pieces))["chunks"].state


def test_broken_stream_reports_its_error_and_no_end() -> None:
    found = judged(streamed((40, text("a")), broke_off="ReadError"))

    assert found["the stream"].seen == "broken off (ReadError)"
    assert "end" not in found
    assert found["first token"].value["ms"] == 40


def test_malformed_stream_fails_only_the_stream_finding() -> None:
    found = judged(streamed((5, b"data: {broken\n\n" + DONE)))

    assert found["the stream"].state == "failed"
    assert found["end"].state == "seen"


def test_null_usage_is_ignored() -> None:
    assert streamed((1, event(usage=None))).last == {}
