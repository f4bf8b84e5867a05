"""Text of a wanted number of tokens: the same for the same key, and different from the first words on for others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from ._messages import Message

# 256 words of three letters. With the blank before it, and at the start of a text, each is one token of OpenAI's
# o200k_base and cl100k_base (checked with both); with its blank it is four characters, which is one token of the
# embedded provider. So a text of n of them has n tokens by either count.
WORDS = tuple(
    """
    ace act add age ago aid aim air all and ant any ape arc are ark arm art ash ask ate axe bad bag ban bar bat bay bed
    bee bet bid big bin bit bow box boy bud bug bus but buy cab can cap car cat cop cow cry cup cut dad dam day den did
    dig dim dog dot dry due ear eat egg ego elf elm end era eve eye fan far fat fee few fig fin fit fix fly for fox fun
    fur gap gas gel gem get gin got had ham hat hay hen her hid him hip his hit hop hot how hub ice icy ink inn ion its
    jam jar jaw jet job joy jug key kid kin kit lab lap law lay leg let lid lie lip lit log lot low mad man map mat may
    men met mix mob mom nap net new nil nod nor not now nut odd off oil old one orb ore our out owe owl own pad pan pay
    pen per pet pie pig pin pit pop pot pub pun put ram ran rat raw ray red rib rid rig rim rip rob rod rot row rub rug
    run sad say sea see set she sip sit six ski sky son spa spy sum sun tab tag tan tap tar tax tea ten the tie tin tip
    ton too top toy try two use van vet via was way web who why wig win wit won wow yes yet you zip
    """.split()  # noqa: SIM905 - nobody reads 256 quoted words
)

INSTRUCTION = "\n\nWrite one long text about these words, as long as you are allowed to."
INSTRUCTION_TOKENS = 17
"""Of o200k_base and of cl100k_base."""

_LEAD_WORDS = 3


@cache
def _shuffled(key: str) -> tuple[str, ...]:
    order = sorted(range(len(WORDS)), key=lambda at: hashlib.blake2b(f"{key}/{at}".encode(), digest_size=8).digest())
    return tuple(WORDS[at] for at in order)


def lead(key: str, number: int) -> tuple[str, ...]:
    """Return three words that no other of the first 16,777,216 numbers has.

    Those of any 256 consecutive numbers differ in their very first word, and no two numbers share all three.
    """
    words = _shuffled(key)
    size = len(words)
    digits = [number // size**place % size for place in range(_LEAD_WORDS)]
    return tuple(words[digit] for digit in digits)


def words(key: str, count: int) -> str:
    """Return `count` words, one token each, drawn by the key."""
    drawn = hashlib.shake_128(key.encode()).digest(max(count, 0))
    return " ".join([WORDS[byte] for byte in drawn])


def prompt(key: str, number: int, tokens: int) -> str:
    """Return the text of prompt `number`, of `tokens` tokens: words that no other prompt begins with, and a request.

    Prompts shorter than the request are the words alone. At least three words are always there.
    """
    tail, tail_tokens = (INSTRUCTION, INSTRUCTION_TOKENS) if tokens >= 2 * INSTRUCTION_TOKENS else ("", 0)
    filling = words(f"{key}/{number}", tokens - tail_tokens - _LEAD_WORDS)
    return " ".join([*lead(key, number), *([filling] if filling else [])]) + tail


def user_prompt(asked: tuple[str, int, int]) -> Message:
    """Return the prompt of a key, a number and a number of tokens as a message."""
    return {"role": "user", "content": prompt(*asked)}


def _block(key: str, number: int, tokens: int) -> str:
    rest = words(f"{key}/block/{number}", tokens - _LEAD_WORDS)
    return " ".join([*lead(key, number)[:tokens], *([rest] if rest else [])])


def shared_prompt(key: str, number: int, tokens: int, blocks: Sequence[int], block_tokens: int) -> str:
    """Return a prompt of `tokens` tokens that begins with the text of its blocks, and goes on with text of its own.

    The text of a block is the same for the same number, and differs from the first word on for another.
    """
    pieces = [
        _block(key, each, min(block_tokens, tokens - at * block_tokens))
        for at, each in enumerate(blocks)
        if at * block_tokens < tokens
    ]
    if (rest := tokens - len(blocks) * block_tokens) > 0:
        pieces.append(_block(f"{key}/own", number, rest))
    return " ".join(pieces)
