"""FastAPI that streams answers: one client for the process, and a reader who leaves ends the call at the provider.

uvicorn examples.fastapi_app:app
curl -N 'http://127.0.0.1:8000/ask?question=Name+three+rivers.'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from openai.types.chat import ChatCompletionChunk

import fastlane
from fastlane import AsyncOpenAI, RateLimits

if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
    fastlane.telemetry.configure()
client = AsyncOpenAI(plays=[RateLimits()])


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with client:  # closes its connections at the end
        yield


app = FastAPI(lifespan=lifespan)


async def texts(stream: openai.AsyncStream[ChatCompletionChunk]) -> AsyncIterator[str]:
    # Starlette closes this generator when the browser has gone, and the block then cancels the call.
    async with stream:
        async for chunk in stream:
            for choice in chunk.choices:
                yield choice.delta.content or ""


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    try:
        stream = await client.chat.completions.create(
            model="gpt-4.1-nano", messages=[{"role": "user", "content": question}], max_tokens=500, stream=True
        )
    except openai.APIError as error:
        raise HTTPException(502, "The model cannot be reached.") from error
    return StreamingResponse(texts(stream), media_type="text/plain")
