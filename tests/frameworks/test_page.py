"""What the page of frameworks shows, and what examples/ has, is run as it stands where its framework is installed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from fastlane import AsyncOpenAI, OpenAI
from fastlane.emulator import Emulator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/frameworks.md"
FILES = {"langchain-openai": "langchain_chat.py", "openai-agents": "openai_agents.py"}
HEADINGS = {
    "instructor": "instructor",
    "LangChain": "langchain-openai",
    "OpenAI Agents SDK": "openai-agents",
    "pydantic-ai": "pydantic-ai",
    "LlamaIndex": "llama-index",
    "LiteLLM": "litellm",
    "Haystack": "haystack",
    "AutoGen": "autogen",
}
# Which of them are tested here: `scripts/frameworks.py` says it.
HERE = os.environ.get("FRAMEWORKS", "").split(",")


def examples() -> dict[str, str]:
    """The examples by framework and number."""
    found = {f"{framework} file": (ROOT / "examples" / name).read_text() for framework, name in FILES.items()}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        framework = HEADINGS.get(section.partition("\n")[0], "")
        blocks = re.findall(r"^```py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        found |= {f"{framework} {number}": block for number, block in enumerate(blocks)}
    return found


def test_every_framework_has_an_example() -> None:
    assert {name.rpartition(" ")[0] for name in examples()} == set(HEADINGS.values())


@pytest.mark.parametrize("example", [name for name in examples() if name.rpartition(" ")[0] in HERE])
def test_example_of_each_framework_runs(example: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", emulator.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    # A module's own name, because frameworks look types up there.
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(examples()[example], f"{PAGE.name}: {example}", "exec"), names)
    clients = [value for value in names.values() if isinstance(value, OpenAI | AsyncOpenAI)]
    calls = sum(len(client.calls) for client in clients)
    assert calls == len(emulator.log()) > 0
    assert {each.http_version for each in emulator.log()} == {"HTTP/2"}
