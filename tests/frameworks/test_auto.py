"""Clients that unmodified frameworks make are fastlane's: installed before and after, and by `fastlane run`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastlane.emulator import Emulator
from tests.frameworks.lanes import QUESTION
from tests.programs import run_python

# Programs that make one call each. At HERE fastlane is installed after the framework's import.
PROGRAMS = {
    "instructor": """import instructor, pydantic
HERE
River = pydantic.create_model("River", name=str)
instructor.from_provider("openai/gpt-4.1-mini").create(messages=MESSAGES, response_model=River)""",
    "langchain-openai": """from langchain_openai import ChatOpenAI
HERE
ChatOpenAI(model="gpt-4.1-mini").invoke(QUESTION)""",
    "openai-agents": """import agents
HERE
agents.Runner.run_sync(agents.Agent(name="guide", model="gpt-4.1-mini"), QUESTION)""",
    "pydantic-ai": """from pydantic_ai import Agent
HERE
Agent("openai-chat:gpt-4.1-mini").run_sync(QUESTION)""",
    "haystack": """from haystack.components.generators.chat import OpenAIChatGenerator
HERE
from haystack.dataclasses import ChatMessage
OpenAIChatGenerator(model="gpt-4.1-mini").run([ChatMessage.from_user(QUESTION)])""",
    "autogen": """import asyncio; from autogen_core.models import *; from autogen_ext.models.openai import *
HERE
messages = [UserMessage(content=QUESTION, source="user")]
asyncio.run(OpenAIChatCompletionClient(model="gpt-4.1-mini").create(messages))""",
    "llama-index": """from llama_index.llms.openai import OpenAI
HERE
OpenAI(model="gpt-4.1-mini").complete(QUESTION)""",
    "litellm": """import litellm
HERE
litellm.completion(model="openai/gpt-4.1-mini", messages=MESSAGES)""",
}
WITH_OWN_HTTP_CLIENT = ("langchain-openai", "litellm", "openai-agents", "pydantic-ai")
ASKED = f"QUESTION = {QUESTION!r}\nMESSAGES = [{{'role': 'user', 'content': QUESTION}}]\n"
INSTALL = "import fastlane\nfastlane.install(on_call_end=lambda record: print(record.outcome, record.transport))\n"
HERE = [name for name in os.environ.get("FRAMEWORKS", "").split(",") if name in PROGRAMS]


@pytest.mark.parametrize("order", ["installed before", "installed after", "fastlane run"])
@pytest.mark.parametrize("framework", HERE)
def test_client_that_a_framework_makes(framework: str, order: str, emulator: Emulator, tmp_path: Path) -> None:
    program = ASKED + PROGRAMS[framework].replace("HERE\n", INSTALL if order == "installed after" else "")
    (tmp_path / "app.py").write_text(INSTALL + program if order == "installed before" else program)
    run = ["-m", "fastlane", "run", "--report"] if order == "fastlane run" else []
    # LlamaIndex reads the address from the second variable.
    address = dict.fromkeys(["OPENAI_BASE_URL", "OPENAI_API_BASE"], emulator.base_url)
    ran = run_python(*run, "app.py", cwd=tmp_path, environment={**address, "OPENAI_API_KEY": "sk-test"})

    assert ran.returncode == 0, ran.stderr[-3000:]
    transport = "caller" if framework in WITH_OWN_HTTP_CLIENT else "fastlane"
    assert f"completed {transport}" in ran.stdout.splitlines() or (run and "1 call, 1 answered" in ran.stderr)
    assert [log.http_version for log in emulator.log()] == ["HTTP/2" if transport == "fastlane" else "HTTP/1.1"]
