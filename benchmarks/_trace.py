"""Requests of a chat service: when they came and which blocks of their prompts they share, recorded or made up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

# Production requests of a chat service, Mooncake (FAST'25), Apache-2.0; an optional input.
RECORDED = Path(__file__).parents[2] / "shared" / "data" / "mooncake_conversation_20min.jsonl"
BLOCK_TOKENS = 512
MADE = "made up: 180 requests a minute for 20 minutes, a share of them going on with a conversation"
_NS = 1_000_000


class Request(NamedTuple):
    """One request of a trace."""

    at_ns: int
    """Since the trace began."""
    tokens: int
    blocks: tuple[int, ...]
    """The prompt's whole blocks of 512 tokens; two prompts are alike as far as these are."""
    first: tuple[int, ...]
    """The blocks of the conversation's first prompt."""


def trace() -> tuple[list[Request], str]:
    """Return the recorded requests where they are, else made ones, and which of both."""
    if not RECORDED.exists():
        return _made(), MADE
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        told = json.loads(line)
        found.append((told["timestamp"] * _NS, told["input_length"], tuple(told["hash_ids"])))
    return _joined(found), RECORDED.stem


def _joined(found: list[tuple[int, int, tuple[int, ...]]]) -> list[Request]:
    """Tell conversations: a prompt that begins with all whole blocks of an earlier one goes on with it."""
    begun: dict[tuple[int, ...], tuple[int, ...]] = {}
    requests = []
    for at_ns, tokens, blocks in found:
        whole = blocks[: tokens // BLOCK_TOKENS]
        # The first block is the same in all prompts and says nothing of the conversation.
        first = next((begun[whole[:size]] for size in range(len(whole), 1, -1) if whole[:size] in begun), blocks)
        begun.setdefault(whole, first)
        requests.append(Request(at_ns, tokens, whole, first))
    return requests


def _made() -> list[Request]:
    rng = random.Random(0)
    found: list[tuple[int, int, tuple[int, ...]]] = []
    conversations: list[list[int]] = []
    block = at_ms = 0
    while at_ms < 1_200_000:
        goes_on = conversations and rng.random() < 0.33
        blocks = conversations.pop(rng.randrange(len(conversations))) if goes_on else [0]
        added = 1 + int(rng.lognormvariate(1.5, 1.2))
        blocks = [*blocks, *range(block + 1, block + 1 + added)]
        block += added
        found.append((at_ms * _NS, len(blocks) * BLOCK_TOKENS, tuple(blocks)))
        conversations = [*conversations[-200:], blocks]
        at_ms += round(rng.expovariate(180 / 60_000))
    return _joined(found)
