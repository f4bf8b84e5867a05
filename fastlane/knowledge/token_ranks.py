"""Load a tokenizer from ranks on disk, and never download them.

tiktoken itself downloads missing ranks, without a timeout. This module reads the same file at the same path, checks its
SHA-256, and gives up at once if it is missing.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from .._fork import in_child, no_fork

Encode = Callable[[str], list[int]]

# Longer texts are split: for a text without blanks, a backtracking pattern can take very long or overflow the stack.
_MOST_CHARACTERS = 50_000

_loaded: dict[str, Encode | None] = {}
_loading: set[str] = set()
in_child(_loading.clear)


@cache
def tables() -> dict[str, Any]:
    """Return the content of `tokenizers.toml`."""
    import tomllib
    from importlib import resources

    return tomllib.loads(resources.files(__package__).joinpath("tokenizers.toml").read_text("utf-8"))


@lru_cache(maxsize=256)
def encoding_of(model: str | None) -> str | None:
    """Return the name of a model's encoding; None if unknown."""
    if not model:
        return None
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    models = tables()["models"]
    if (whole := models["names"].get(name.partition(":")[0])) is not None:
        return str(whole)
    beginnings = [one for one in models["beginnings"] if name.startswith(one)]
    return str(models["beginnings"][max(beginnings, key=len)]) if beginnings else None


def ranks_file(encoding: str) -> Path | None:
    """Return the path of an encoding's ranks in tiktoken's cache; None if that cache is turned off."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":
        return None
    if folder is None:
        folder = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    address = tables()["encodings"][encoding]["ranks"]
    return Path(folder) / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()


def encoder(encoding: str, *, wait: bool) -> Encode | None:
    """Return the function that encodes a text to tokens; None if tiktoken or the ranks are missing.

    With `wait=False` a background thread loads it (0.1 to 0.4 s); until then None is returned. The result is kept for
    the process.
    """
    if encoding in _loaded:
        return _loaded[encoding]
    if wait:
        # Two threads may load it twice, with the same result.
        return _loaded.setdefault(encoding, _load(encoding))
    file = ranks_file(encoding)
    if file is None or not file.is_file():
        _loaded[encoding] = None
    elif encoding not in _loading:
        _loading.add(encoding)
        load = threading.Thread(target=encoder, args=(encoding,), kwargs={"wait": True}, daemon=True)
        load.start()
    return None


def _load(encoding: str) -> Encode | None:
    table = tables()["encodings"][encoding]
    file = ranks_file(encoding)
    try:
        data = file.read_bytes() if file is not None else b""
        if hashlib.sha256(data).hexdigest() != table["sha256"]:
            return None
        with no_fork:
            import tiktoken

        ranks = {binascii.a2b_base64(token): int(rank) for token, rank in map(bytes.split, data.splitlines())}
        made = tiktoken.Encoding(encoding, pat_str=table["pattern"], mergeable_ranks=ranks, special_tokens={})
    except (ImportError, OSError, ValueError):
        return None
    # In a message, a special token's text is plain text.
    plain = made.encode_ordinary

    def encode(text: str) -> list[int]:
        starts = range(0, len(text), _MOST_CHARACTERS)
        return [token for start in starts for token in plain(text[start : start + _MOST_CHARACTERS])]

    return encode
