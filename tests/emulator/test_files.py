from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import openai
import pytest

from fastlane.emulator import Emulator, Server, preset
from tests.emulator.offline import upload


def test_upload_comes_back_byte_for_byte(client: openai.OpenAI) -> None:
    content = b"\r\n--\x00{}\r\n\r\n\n" * 70_000
    file = client.files.create(file=("ä b.jsonl", content), purpose="batch")

    assert file.bytes == len(content)
    assert (file.purpose, file.status) == ("batch", "processed")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == content


def test_list_has_pages_an_order_and_purposes(client: openai.OpenAI) -> None:
    made = [client.files.create(file=(f"{number}", b"x"), purpose="user_data") for number in range(5)]
    other = upload(client, ["x"])
    ids = [file.id for file in made]

    assert [file.id for file in client.files.list()] == [other.id, *reversed(ids)]
    assert [file.id for file in client.files.list(order="asc", limit=2, purpose="user_data")] == ids
    page = client.files.list(limit=2, after=ids[3], purpose="user_data")
    assert ([file.id for file in page.data], page.has_more) == ([ids[2], ids[1]], True)
    assert client.files.list(after=ids[0]).has_more is False


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=10001"])
def test_list_that_cannot_be_is_refused(client: openai.OpenAI, query: str) -> None:
    name, _, value = query.partition("=")
    with pytest.raises(openai.BadRequestError) as refused:
        client.files.list(extra_query={name: value})

    assert refused.value.param == name


def test_deleted_file_is_not_found(client: openai.OpenAI, emulator: Emulator) -> None:
    file = upload(client, ["x"])
    deleted = client.files.delete(file.id)

    assert (deleted.id, deleted.deleted) == (file.id, True)
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match="No such File object") as missing:
            ask(file.id)
        assert missing.value.code == "not_found"
    assert [(each.id, each.deleted_ns is None) for each in emulator.offline().files] == [(file.id, False)]


def test_requests_are_served_during_a_slow_upload(client: openai.OpenAI, http: httpx2.Client) -> None:
    content = b"0123456789abcdef" * 65_536
    head = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="slow.jsonl"\r\n\r\n'
    )

    def body() -> Iterator[bytes]:
        yield head + content
        assert client.models.list().data
        assert client.files.list().data == []
        yield content + b"\r\n--b--\r\n"

    file = http.post("/files", content=body(), headers={"content-type": "multipart/form-data; boundary=b"}).json()

    assert (file["filename"], file["bytes"]) == ("slow.jsonl", 2 * len(content))
    assert client.files.content(file["id"]).content == 2 * content


def test_aborted_upload_leaves_no_file(client: openai.OpenAI, http: httpx2.Client) -> None:
    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        raise KeyError("killed")

    with pytest.raises(KeyError):
        http.post("/files", content=body(), headers={"content-type": "multipart/form-data; boundary=b"})
    upload(client, ["x"], "whole.jsonl")

    assert [file.filename for file in client.files.list()] == ["whole.jsonl"]


@pytest.mark.asyncio
async def test_in_process_server_cancels_work_of_closed_connection() -> None:
    server = Server(model=preset("instant"), tls=False, faults=("delayed=3600;on=POST files",))
    async with server, openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        asking = asyncio.create_task(client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch"))
        while not server.log or server.log[0].body_complete_ns is None:  # noqa: ASYNC110 - a record sets no event
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
    assert len(asyncio.all_tasks()) == 1
    assert server.offline.files == ()
