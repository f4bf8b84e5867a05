"""LangChain: `ChatOpenAI` is handed both clients, for its sync and its async methods."""

from langchain_openai import ChatOpenAI

from fastlane import AsyncOpenAI, OpenAI

client, async_client = OpenAI(), AsyncOpenAI()
model = ChatOpenAI(
    model="gpt-4.1-nano",
    client=client.chat.completions,
    async_client=async_client.chat.completions,
    root_client=client,
    root_async_client=async_client,
)
for piece in model.stream("Name three rivers."):
    print(piece.content, end="", flush=True)
print()
print(client.report())
