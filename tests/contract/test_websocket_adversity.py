"""What networks, servers and applications do to a WebSocket: each ending is an error of `websockets` and a record."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK
from websockets.sync.server import ServerConnection, serve

import fastlane
from fastlane import CallRecord
from fastlane.emulator import Emulator
from tests.contract.test_websocket import ENDS, HELLO, MODEL, responses_of, turn, until_end
from tests.knowledge.forks import in_child
from tests.transport.connect_proxy import ConnectProxy
from tests.transport.peer import LOCAL_NAMES, authority, server_context
from tests.waiting import HANG_S, Form, inner_of, until

COMPLETED = {
    "type": "response.completed",
    "sequence_number": 1,
    "response": {
        "id": "resp_1", "object": "response", "created_at": 1, "model": MODEL, "status": "completed", "output": [],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
    },
}  # fmt: skip


@pytest.fixture
def options(arguments: dict[str, Any], reported: list[CallRecord]) -> dict[str, Any]:
    return {**arguments, "on_call_end": [reported.append], "raise_play_errors": True}


@pytest.fixture
def client(form: Form, options: dict[str, Any]) -> Iterator[Any]:
    with form.make(fastlane, **options) as client:
        yield client


@contextmanager
def scripted(form: Form, script: Callable[[ServerConnection], None]) -> Iterator[Any]:
    """A client of a server that does what a script says."""
    context = server_context(LOCAL_NAMES, ["http/1.1"])
    with serve(script, "127.0.0.1", 0, ssl=context) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{server.socket.getsockname()[1]}/v1"
        try:
            with form.make(fastlane, api_key="sk-test", base_url=url) as client:
                yield client
        finally:
            server.shutdown()
            thread.join(HANG_S)


def test_fragments_and_pings_amid_a_message_are_put_together(form: Form, trusting_peers: None) -> None:
    ponged = threading.Event()

    def script(server: ServerConnection) -> None:
        server.recv()
        text = json.dumps(COMPLETED)

        def fragments() -> Iterator[str]:
            for start in range(0, len(text), 50):
                if start == 100 and server.ping().wait(HANG_S):
                    ponged.set()
                yield text[start : start + 50]

        server.send(fragments())
        with suppress(ConnectionClosedOK):
            server.recv()

    with scripted(form, script) as client, client.responses.connect() as connection:
        (event,) = turn(connection)

    assert event.response.id == "resp_1"
    assert ponged.is_set()


def test_idle_connection_answers_pings(form: Form, trusting_peers: None) -> None:
    """No thread receives meanwhile, as while a tool of an agent runs."""
    ponged: list[bool] = []

    def script(server: ServerConnection) -> None:
        ponged.append(server.ping().wait(HANG_S))
        with suppress(ConnectionClosedOK):
            server.recv()

    with scripted(form, script) as client, client.responses.connect():

        def look() -> list[bool]:
            form.go_on()
            return ponged

        until(look)
    assert ponged == [True]


@pytest.mark.parametrize(
    ("fault", "error", "outcome"),
    [
        ("goaway=graceful;after=2", None, "closed"),
        ("truncate;after=2", ConnectionClosedError, "failed"),
        ("drop;after_bytes=1500", ConnectionClosedError, "failed"),
    ],
)
def test_each_ending_is_the_error_of_websockets_and_one_record(
    client: Any, provider: Emulator, reported: list[CallRecord], fault: str, error: Any, outcome: str
) -> None:
    provider.set_faults(f"{fault};on=WS responses")
    with client.responses.connect() as connection:
        connection.send(HELLO)
        if error is None:
            assert until_end(connection)[-1].type not in ENDS
        else:
            with pytest.raises(error):
                until_end(connection)

    assert [record.outcome for record in reported] == [outcome]


def test_closing_amid_an_answer_ends_its_record(client: Any, provider: Emulator, reported: list[CallRecord]) -> None:
    provider.set_faults("stall;after=2;on=WS responses")
    with client.responses.connect() as connection:
        connection.send(HELLO)
        assert connection.recv().type == "response.created"

    assert [(record.outcome, record.events) for record in reported] == [("closed", 1)]


def test_dropped_connection_is_closed_and_its_record_ends(
    form: Form, client: Any, provider: Emulator, reported: list[CallRecord]
) -> None:
    provider.set_faults("stall;after=2;on=WS responses")
    connection = client.responses.connect().enter()
    connection.send(HELLO)
    connection.recv()
    gone = weakref.ref(inner_of(connection)._connection)
    del connection
    gc.collect()

    def is_closed() -> bool:
        form.go_on()
        return any(log.connection_closed_by == "client" for log in provider.log())

    until(is_closed)
    client.calls  # noqa: B018 - waits for what a finalizer has left to be reported
    assert [record.outcome for record in reported] == ["abandoned"]
    gc.collect()
    until(lambda: gone() is None)


def test_cancelled_receive_loses_nothing(arguments: dict[str, Any]) -> None:
    async def received(connection: Any, turns: int) -> Any:
        """Cancel receiving after so many turns of the loop; return what came, or what comes next."""
        waiting = asyncio.ensure_future(connection.recv())
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            return await connection.recv()

    async def receive() -> list[str]:
        client = fastlane.AsyncOpenAI(**arguments)
        async with client, client.responses.connect() as connection:
            await connection.send(HELLO)
            types: list[str] = []
            while not types or types[-1] not in ENDS:
                types.append((await received(connection, turns=len(types) % 3)).type)
            return types

    types = asyncio.run(receive())
    assert (len(types), types[0], types[-1]) == (13, "response.created", "response.completed")


def test_threads_send_while_another_receives(options: dict[str, Any], reported: list[CallRecord]) -> None:
    with fastlane.OpenAI(**options) as client, client.responses.connect() as connection:

        def send(lane: int) -> None:
            for number in range(5):
                asked: Any = {**HELLO, "stream_id": f"lane-{lane}", "input": f"{number}"}
                connection.send(asked)

        threads = [threading.Thread(target=send, args=(lane,)) for lane in range(8)]
        for thread in threads:
            thread.start()
        ended = 0
        while ended < 40:
            ended += connection.recv().type == "response.completed"
        for thread in threads:
            thread.join()

    assert len({record.response_id for record in reported}) == 40
    assert {record.outcome for record in reported} == {"completed"}


def test_child_process_gets_an_error_and_leaves_the_parent_alone(client: Any) -> None:
    with client.responses.connect() as connection:
        turn(connection)
        made = inner_of(connection)

        def child() -> str:
            try:
                made._connection._check_process()
            except ConnectionClosedError as error:
                return str(error.__cause__)
            return "it may be used"

        assert "belongs to the parent process" in in_child(child)
        assert turn(connection)[-1].type == "response.completed"


@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_proxy_carries_the_socket(
    form: Form,
    arguments: dict[str, Any],
    provider: Emulator,
    scheme: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(provider.certificate_authority.read_bytes() + authority().cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(both))
    # On an event loop `websockets` opens TLS inside TLS, and sends escaped characters of credentials as they are.
    is_theirs = form.asynchronous and scheme == "https"
    with ConnectProxy(scheme, guarded=not is_theirs) as proxy:
        with form.make(fastlane, **arguments, proxy=proxy.url) as client, client.responses.connect() as connection:
            assert turn(connection)[-1].type == "response.completed"
            opening = inner_of(connection)._connection.opening

        assert proxy.asked == [arguments["base_url"].split("/")[2]]
        assert (opening is None) is is_theirs
        assert opening is None or (opening.proxy, opening.alpn) == (proxy.address, "http/1.1")


def test_reconnecting_uses_our_sockets_and_sends_what_was_queued(
    form: Form, client: Any, provider: Emulator, reported: list[CallRecord]
) -> None:
    provider.set_faults("drop;after_events=3;times=1;on=WS responses")
    attempts: list[int] = []

    def again(event: Any) -> None:
        attempts.append(event.attempt)
        sending = inner_of(connection).send(HELLO)
        if form.asynchronous:
            tasks.append(asyncio.ensure_future(sending))

    tasks: list[Any] = []
    with client.responses.connect(on_reconnecting=again, initial_delay=0.01) as connection:
        first = inner_of(connection)._connection
        types = [event.type for event in turn(connection)]
        second = inner_of(connection)._connection

    assert len(types) == 3 + 13
    assert second is not first
    assert type(second) is type(first)
    assert [record.outcome for record in reported] == ["failed", "completed"]


def test_sessions_of_openai_route_lanes_over_our_socket(form: Form, client: Any, reported: list[CallRecord]) -> None:
    sessions = pytest.importorskip("openai.lib.responses_websocket", reason="this version of openai has none")
    limits = sessions.ResponsesWebSocketLimits(
        max_lanes=8, max_events_per_lane=500, max_events=2_000, max_bytes_per_lane=1 << 24, max_bytes=1 << 25
    )
    with client.responses.connect() as connection:
        over = {"connection": inner_of(connection), "limits": limits}
        with form.make(sessions, "ResponsesWebSocketSession", **over) as session:
            opened = [session.lane(name) for name in ("a", "b")]
            for lane in opened:
                lane.send(HELLO)
            found = [lane.get_final_response() for lane in opened]

    assert [response.status for response in found] == ["completed"] * 2
    assert {record.response_id for record in reported} == {response.id for response in found}


def test_http_client_of_the_application_opens_openais_connection(
    form: Form, arguments: dict[str, Any], reported: list[CallRecord]
) -> None:
    library = openai.DefaultAsyncHttpxClient() if form.asynchronous else openai.DefaultHttpxClient()
    client = form.make(fastlane, **arguments, http_client=library, on_call_end=reported.append)
    with client, client.responses.connect() as connection:
        assert turn(connection)[-1].type == "response.completed"
        assert inner_of(connection)._connection.opening is None

    assert [(record.outcome, record.transport) for record in reported] == [("completed", "caller")]


def test_silent_server_is_a_timeout_and_a_closed_port_an_os_error(form: Form, trusting_peers: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        with form.make(fastlane, api_key="sk-test", base_url=url) as client:
            manager = client.responses.connect(websocket_connection_options={"open_timeout": 0.2})
            with pytest.raises(TimeoutError), manager:
                pass
    client = form.make(fastlane, api_key="sk-test", base_url=url)
    with client, pytest.raises(ConnectionRefusedError), client.responses.connect():
        pass


@pytest.mark.asyncio
async def test_cancelled_connect_closes_its_socket_to_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    greeted, gone = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        greeted.set()
        await reader.read()
        gone.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        async with fastlane.AsyncOpenAI(api_key="sk-test", base_url="https://a.invalid/v1") as client:
            connecting = asyncio.ensure_future(client.responses.connect().enter())
            await asyncio.wait_for(greeted.wait(), HANG_S)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await connecting
            await asyncio.wait_for(gone.wait(), HANG_S)
            del raised  # what it holds would have kept the socket open


def test_model_that_only_routing_knows_is_refused_before_it_is_sent(client: Any, provider: Emulator) -> None:
    wrong = pytest.raises(fastlane.ConfigurationError, match="name a model of the provider")
    with client.responses.connect() as connection, wrong:
        connection.send({**HELLO, "model": "fastlane/auto"})
    assert responses_of(provider) == []


def test_stock_error_types_are_not_hidden(client: Any, provider: Emulator) -> None:
    """An error event stays an event, and `dispatch_events` raises as openai's does."""
    with client.responses.connect() as connection:
        connection.send({**HELLO, "previous_response_id": "resp_none"})
        with pytest.raises(openai.OpenAIError, match="previous_response_not_found"):
            connection.dispatch_events()
