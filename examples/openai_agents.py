"""OpenAI Agents: every agent uses fastlane's client, and a run's calls are one user action in reports and traces."""

import asyncio

from agents import Agent, Runner, function_tool, set_default_openai_client

import fastlane

client = fastlane.AsyncOpenAI()
set_default_openai_client(client)


@function_tool
def get_weather(city: str) -> str:
    """Say what the weather is like in a city."""
    return f"18 degrees in {city}"


async def main() -> None:
    agent = Agent("assistant", model="gpt-4.1-nano", tools=[get_weather])
    with fastlane.user_action("answer"):
        result = await Runner.run(agent, "What is the weather in Vienna?")
    print(result.final_output)
    print(client.report())
    await client.close()


asyncio.run(main())
