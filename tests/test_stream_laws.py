"""An async client's stream of whatever a server sends, cut however the network cuts it, is the stock client's."""

from __future__ import annotations

from contextlib import closing

import openai
from hypothesis import example, given, settings, strategies as st

import fastlane
from tests.fuzz.targets._stream import ARGUMENTS, SERVER, WHOLE, drawn_answer, outcome_of
from tests.prepared_server import LIBRARY
from tests.waiting import Form, Waiting

ASYNC_STOCK = openai.AsyncOpenAI(http_client=LIBRARY.AsyncClient(transport=SERVER), **ARGUMENTS)
ASYNC_OURS = fastlane.AsyncOpenAI(http_client=LIBRARY.AsyncClient(transport=SERVER), **ARGUMENTS)


@settings(max_examples=150)
@example(([b"data: " + WHOLE + b"\n\ndata: " + WHOLE + b"\r\n\r", b"\n: x\n\n"], None))
@example(([b"data: " + WHOLE + b"\n\n", b"data: " + WHOLE + b"\n"], "ReadError"))
@given(st.binary(max_size=120).map(drawn_answer))
def test_every_body_is_parsed_as_by_the_async_stock_client(answer: tuple[list[bytes], str | None]) -> None:
    SERVER.reads, SERVER.failure = answer
    with closing(Form("async")) as form:
        expected, found = (outcome_of(Waiting(client, form.run)) for client in (ASYNC_STOCK, ASYNC_OURS))
    assert found == expected
    assert ASYNC_OURS.calls[-1].events == len(expected[0])
