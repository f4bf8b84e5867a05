"""The presets: each with the document that its figures come from."""

from __future__ import annotations

from typing import Final

from ._lengths import TokenLengths, exactly
from ._preset_types import Preset, Scenario

_LOAD_REPORT = "a load report of gpt-4.1-nano through a public API, of 27 January 2026"
_LATENCY_REPORT = "a latency benchmark of GPT-2 (124M) on a CPU, of 28 January 2026: 1 warm-up run and 5 runs of each"
_SCALING_REPORT = (
    "a report of decode speed on a dedicated GPU (H200), which names two of four context lengths and states none: the "
    "lengths are this project's"
)
_ARTIFICIAL_ANALYSIS = (
    "Artificial Analysis's published method for API performance: prompts of about 100, 1,000 and 10,000 tokens, alone "
    "and 10 in parallel, a new prompt for every request"
)
_TALK = "a talk on the performance of inference APIs (TMLS 2026)"
_USERS = (1, 10, 20, 30, 40, 50)

_RAG_INPUT, _LONG_OUTPUT = TokenLengths(least=1_000, most=10_000), TokenLengths(least=1_000, most=10_000)
_SHORT_INPUT, _SHORT_OUTPUT = TokenLengths(least=100, most=200), TokenLengths(least=200, most=500)


def _of_report(name: str, description: str, of: TokenLengths, to: TokenLengths) -> Preset:
    return Preset(
        name=name,
        description=description,
        source=_LOAD_REPORT,
        scenarios=(Scenario(input=of, output=to),),
        users=_USERS,
        caching_forbidden=True,
        least_output=True,
        # The report's users send their next request at once.
        think_s=0.0,
    )


def _analysed(name: str, of: int, to: int) -> Preset:
    return Preset(
        name=name,
        description=f"{of:,} tokens in, at most {to:,} out",
        source=_ARTIFICIAL_ANALYSIS,
        scenarios=(Scenario(input=exactly(of), output=exactly(to)),),
        users=(1, 10),
        caching_forbidden=True,
    )


PRESETS: Final = {
    preset.name: preset
    for preset in (
        _of_report("rag", "Retrieval-augmented generation: long prompts, short answers", _RAG_INPUT, _SHORT_OUTPUT),
        _of_report("generate", "Text generation: short prompts, long answers", _SHORT_INPUT, _LONG_OUTPUT),
        _of_report("chat", "Conversation: short prompts, short answers", _SHORT_INPUT, _SHORT_OUTPUT),
        Preset(
            name="cpu-small",
            description="Three short requests, one at a time, for a model on a CPU",
            source=_LATENCY_REPORT,
            scenarios=(
                Scenario(name="short", input=exactly(128), output=exactly(64)),
                Scenario(name="medium", input=exactly(512), output=exactly(128)),
                Scenario(name="long", input=exactly(1_024), output=exactly(256)),
            ),
            users=(1,),
            caching_forbidden=True,
            least_output=True,
            warm_up=1,
            runs=5,
            requests=6,
            think_s=0.0,
        ),
        Preset(
            name="scaling",
            description="Exactly N requests in flight at four context lengths, answers of 256 tokens",
            source=_SCALING_REPORT,
            scenarios=(
                Scenario(name="chatbot", input=exactly(1_024), output=exactly(256),
                         description="a system prompt and a few turns"),
                Scenario(name="retrieval", input=exactly(4_096), output=exactly(256),
                         description="a question and about ten passages of 400 tokens"),
                Scenario(name="coding-assistant", input=exactly(16_384), output=exactly(256),
                         description="several files of 300 to 500 lines"),
                Scenario(name="tool-calling-agent", input=exactly(30_720), output=exactly(256),
                         description="tool definitions, results of dozens of calls; fits 32 k"),
            ),
            users=(1, 2, 4, 8, 16, 32),
            caching_forbidden=True,
            least_output=True,
            think_s=0.0,
        ),
        _analysed("aa-100", 100, 300),
        _analysed("aa-1k", 1_000, 1_000),
        _analysed("aa-10k", 10_000, 1_500),
        Preset(
            name="ten-calls",
            description="An agent that makes ten calls one after the other, 10,000 tokens in and 500 out each",
            source=f"{_TALK}: an illustrative agent of ten sequential calls",
            scenarios=(Scenario(input=exactly(10_000), output=exactly(500)),),
            users=(1,),
            calls=10,
            requests=1_000,
            think_s=0.0,
        ),
        Preset(
            name="code-review",
            description="An agent that reviews modules of the running Python's standard library",
            source="built in: real source code, reviews made for this project",
            scenarios=(Scenario(),),
            users=(8,),
            kind="code review",
            requests=31,
        ),
        Preset(
            name="airline",
            description="A customer-service agent: a policy of 6 kB, 14 tools, 7 to 51 messages",
            source="built in: synthetic, in the shape of the airline runs of sierra-research/tau-bench, whose "
            "own recordings can be given as a file",
            scenarios=(Scenario(),),
            users=(8,),
            kind="airline",
            requests=1_000,
        ),
    )
}  # fmt: skip
