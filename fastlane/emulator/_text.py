"""What the model says: English that reads like a code review, the same for the same seed and prompt."""

from __future__ import annotations

from random import Random

from fastlane.emulator import _tokens

_SUBJECTS = (
    "this function", "the retry loop", "the cache key", "the test", "the error path", "the parser", "this default",
    "the connection pool", "the docstring", "the lock", "the return type", "the second branch", "the caller",
)  # fmt: skip
_VERBS = (
    "hides", "repeats", "ignores", "depends on", "should name", "never checks", "leaks", "duplicates", "assumes",
    "handles", "rewrites", "can drop", "ought to test",
)  # fmt: skip
_OBJECTS = (
    "an empty input", "the time-out", "the caller's intent", "a closed socket", "the unit of the value",
    "a second writer", "the first failure", "the happy path", "an unused import", "the order of arguments",
    "a race", "the exit code", "the previous release",
)  # fmt: skip
_THOUGHTS = (
    "Let me think about this step by step", "I have read the message twice to be sure",
    "There are several ways to read this message", "On the one hand it could be taken for something else",
    "On the other hand the wording points in one direction", "Taken as a whole, the evidence is fairly strong",
    "I would like to add that context matters here", "It is worth noting that reasonable people could disagree",
)  # fmt: skip
_ENDS = (".", ".", "; rename it.", ", so add a test.", " when the queue is full.", "; see the comment above.")


def review(random: Random, *, tokens: int) -> str:
    """Return text of exactly `tokens` tokens."""
    wanted = tokens * _tokens.CHARACTERS_PER_TOKEN
    sentences: list[str] = []
    length = 0
    while length < wanted:
        subject = random.choice(_SUBJECTS)
        words = f"{subject[0].upper()}{subject[1:]} {random.choice(_VERBS)} {random.choice(_OBJECTS)}"
        sentence = f"{words}{random.choice(_ENDS)} "
        sentences.append(sentence)
        length += len(sentence)
    return "".join(sentences)[:wanted]


def thinking_aloud(random: Random, *, tokens: int) -> str:
    """Return sentences of at least `tokens` tokens that say nothing, as a talkative model begins."""
    sentences = ["After carefully considering the details, I will now give my answer."]
    while sum(map(len, sentences)) < tokens * _tokens.CHARACTERS_PER_TOKEN:
        sentences.append(f"{random.choice(_THOUGHTS)}.")
    return " ".join(sentences)
