"""What watching a structured answer costs: CPU for each piece that is streamed, of `BoundedOutput`'s scanner of JSON.

Answers of three kinds: a support ticket (`ticket`, and written with line feeds and indents, `ticket_indented`), one
long text (`long_text`), and a tree of small objects (`nested`). Each is cut into pieces of 3 to 5 characters at random,
the size of a usual token. `numbers` is nothing but a list of integers.

Inside: all CPU time of the process from the first piece to the last, the scanner's construction too; each figure is the
median of its rounds. Outside: receiving events, and garbage collection.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from benchmarks._paired import cpu_pairs, median
from benchmarks._report import Figure, Report
from fastlane.plays.bounded_output.scanner import JsonScanner

_ANSWERS = 40
_ROUNDS = 40
_QUICK_ROUNDS = 10
_CATEGORIES = ("billing", "bug", "feature_request", "account_access", "shipping", "other")
_TEAMS = ("payments", "platform", "customer_success", "logistics")
_SENTENCE = (
    "the customer was charged twice for one order and asks that the second payment is sent back as soon as possible, "
    "which the shop's own page says takes three days; there was no answer to an earlier message"
)
_WORDS = _SENTENCE.split()


def _text(random: Random, words: int) -> str:
    return " ".join(random.choices(_WORDS, k=words))


def _ticket(random: Random) -> Any:
    return {
        "category": random.choice(_CATEGORIES),
        "confidence": round(random.random(), 2),
        "priority": random.randint(1, 5),
        "summary": _text(random, 30)[:400],
        "tags": random.choices(_WORDS, k=random.randint(0, 5)),
        "steps": [
            {"team": random.choice(_TEAMS), "action": _text(random, 10)[:120]} for _ in range(random.randint(1, 4))
        ],
        "assignee": random.choice((None, "Maria Schmidt")),
        "refund": random.random() < 0.5,
    }


def _long_text(random: Random) -> Any:
    return {"text": ".\n\n".join(_text(random, 60) for _ in range(10))[:20_000]}


def _nested(random: Random, depth: int = 0) -> Any:
    children = [_nested(random, depth + 1) for _ in range(random.randint(1, 3))] if depth < 4 else []
    return {"name": random.choice(_WORDS), "weight": random.randint(0, 100), "children": children}


def _pieces(text: str, random: Random) -> list[str]:
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = random.randint(3, 5)
        pieces.append(text[at : at + size])
        at += size
    return pieces


def _watch(answers: Sequence[Sequence[str]]) -> None:
    for answer in answers:
        feed = JsonScanner().feed
        for piece in answer:
            said = feed(piece)
        assert said == "complete"


def _per_piece_us(answers: Sequence[Sequence[str]], rounds: int) -> float:
    """Median CPU microseconds for each piece."""
    (taken,) = cpu_pairs([partial(_watch, answers)], rounds, warm_ups=1)
    return median(taken).value / 1e3 / sum(map(len, answers))


def measure(quick: bool) -> Report:
    """Feed the answers of every schema."""
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    random = Random(7)
    tickets = [_ticket(random) for _ in range(_ANSWERS)]
    texts = {
        "ticket": [json.dumps(ticket, separators=(",", ":")) for ticket in tickets],
        "ticket_indented": [json.dumps(ticket, indent=2) for ticket in tickets],
        "long_text": [json.dumps(_long_text(random)) for _ in range(_ANSWERS)],
        "nested": [json.dumps(_nested(random)) for _ in range(_ANSWERS)],
        "numbers": [json.dumps(random.choices(range(1_000), k=200), separators=(",", ":")) for _ in range(_ANSWERS)],
    }
    figures: dict[str, Figure] = {}
    sizes: list[float] = []
    for name, answers in texts.items():
        cuts = [_pieces(answer, random) for answer in answers]
        figures[f"{name}_us"] = _per_piece_us(cuts, rounds)
        sizes += [len(piece) for pieces in cuts for piece in pieces]
    return Report(
        figures=figures,
        reach={f"{name}_us": "<= 3" for name in texts},
        conditions={"rounds": rounds, "mean_piece_characters": round(sum(sizes) / len(sizes), 2)},
    )
