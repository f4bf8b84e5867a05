"""The emulator's own tokenizer: every four characters are a token."""

from __future__ import annotations

from hashlib import blake2b

# English and code come to about four characters per token with OpenAI's tokenizers. Fixed slices make counting a
# division and keep every prefix of a text a prefix of its tokens, which the prefix cache stands on.
CHARACTERS_PER_TOKEN = 4


def count(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def split(text: str) -> tuple[str, ...]:
    return tuple(text[at : at + CHARACTERS_PER_TOKEN] for at in range(0, len(text), CHARACTERS_PER_TOKEN))


def prefix_digests(text: str, *, block_tokens: int) -> tuple[bytes, ...]:
    """Return, for every whole block of tokens, a digest of the text from its start to that block's end."""
    width = block_tokens * CHARACTERS_PER_TOKEN
    running = blake2b(digest_size=16)
    digests: list[bytes] = []
    for at in range(0, len(text) - width + 1, width):
        running.update(text[at : at + width].encode("utf-8", "surrogatepass"))
        digests.append(running.digest())
    return tuple(digests)


def fingerprint(text: str) -> str:
    """Return a short digest of a whole text, by which equal prompts get equal answers."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
