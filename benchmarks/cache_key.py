"""What spreading a cache key is worth on a fleet of machines that each take 15 requests a minute of a key and prefix.

Simulated, with the arrivals and shared prefixes of a production trace where it is there, else of a made one. The
machines are those of the emulator, in the trace's time: the hash of a prompt's first 256 tokens and its key names the
machine, 15 requests a minute of both go there, more to the first additional machine that takes one (or, `anywhere`, to
any: what providers do with them is not documented); a block is forgotten after 300 s. Every request goes out without
a key, with one key for all, with a key for each conversation, and with fastlane's: its own functions name the stable
prefix and the session from the request's body, and its spreader the shard (in several processes: each sees the calls
that happen to come to it). The oracle is a bound and no strategy: one machine without a limit that holds everything,
so that no choice of machines can read more. `agents`: the same requests behind 2,048 tokens of tools that all have in
common. Inside: shares of all prompt tokens that are read from the cache. Outside: everything else, such as the
client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Any

from benchmarks._report import Figure, Reach, Report
from benchmarks._trace import BLOCK_TOKENS, Request, trace
from fastlane.emulator._prefix_cache import PrefixCache
from fastlane.plays.prompt_cache.key import KeySpreader, session_of, stable_key

_PER_MINUTE = 15
_MACHINES = 64
_EXPIRY_NS = 300 * 10**9
_MINIMUM_TOKENS = 1_024
_REPLICAS = 4
# Blocks of tools before the trace's own.
_PREFIXES = {"trace": 0, "agents": 4}

Keys = Callable[[Request, Mapping[str, Any]], str | None]


class _Anywhere(PrefixCache):
    """A fleet that sends what is too much for one machine to any."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._random = Random(0)

    def _routed(self, route: str, now: int) -> int:
        machine = super()._routed(route, now)
        own = int.from_bytes(blake2b(route.encode(), digest_size=8).digest(), "big") % self._machines
        return machine if machine == own else self._random.randrange(self._machines)


@lru_cache(maxsize=1 << 16)
def _text(block: int) -> str:
    """A block's text: four characters a token, and other words in every block."""
    words = (
        blake2b(str(block).encode(), digest_size=16).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))
    )
    return (words + " ").ljust(BLOCK_TOKENS * 4, ".")


def _body(request: Request, stable: str) -> dict[str, Any]:
    """The request as an application would send it: what all have in common, then the conversation."""
    system, *said = map(_text, request.first)
    messages = [{"role": "system", "content": stable + system}, {"role": "user", "content": "".join(said)}]
    return {"model": "m", "messages": messages}


def _hit_share(requests: Sequence[Request], keys: Keys | None, fleet: type[PrefixCache], stable_blocks: int) -> float:
    """The share of all tokens that the fleet has read from its caches."""
    cache = fleet(
        block_tokens=BLOCK_TOKENS,
        minimum_tokens=_MINIMUM_TOKENS,
        expiry_ns=_EXPIRY_NS,
        machines=_MACHINES,
        per_minute=_PER_MINUTE,
    )
    random = Random(0)
    stable = "".join(_text(-1 - number) for number in range(stable_blocks))
    read = tokens = 0
    for request in requests:
        machine = 0
        if keys is not None:
            key = keys(request, _body(request, stable))
            machine = cache.machine(key, random, prefix=(stable + _text(0))[:1_024], now=request.at_ns)
        digests = _digests(request.blocks, stable_blocks)
        read += cache.cached_tokens(machine, "m", digests, request.at_ns)
        cache.remember(machine, "m", digests, request.at_ns)
        tokens += request.tokens + stable_blocks * BLOCK_TOKENS
    return read / tokens


def _digests(blocks: Sequence[int], stable_blocks: int) -> tuple[bytes, ...]:
    # The trace's ids name a block together with all that stands before it.
    return tuple(str(block).encode() for block in (*range(-stable_blocks, 0), *blocks))


def _none(_request: Request, _body: Mapping[str, Any]) -> None:
    return None


def _one(_request: Request, _body: Mapping[str, Any]) -> str:
    return "k"


def _by_conversation(request: Request, _body: Mapping[str, Any]) -> str:
    return str(request.first)


def _spread(replicas: int = 1) -> Keys:
    spreaders = [KeySpreader() for _ in range(replicas)]
    turn = Random(0)

    def key(request: Request, body: Mapping[str, Any]) -> str:
        spreader = turn.choice(spreaders)
        path, family = "/chat/completions", stable_key("/chat/completions", body)
        shards = spreader.shards("", family, request.at_ns, _PER_MINUTE / replicas)
        return spreader.key(family, session_of(path, body), shards) if shards > 1 else family

    return key


def measure(quick: bool) -> Report:
    """Replay the trace once for each strategy; the first six minutes only when in a hurry."""
    requests, source = trace()
    if quick:
        requests = [request for request in requests if request.at_ns < 360 * 10**9]
    figures: dict[str, Figure] = {}
    reach = []
    for name, blocks in _PREFIXES.items():
        arms = {
            "no_key": _hit_share(requests, _none, PrefixCache, blocks),
            "one_key": _hit_share(requests, _one, PrefixCache, blocks),
            "key_per_conversation": _hit_share(requests, _by_conversation, PrefixCache, blocks),
            "spread": _hit_share(requests, _spread(), PrefixCache, blocks),
            f"spread_in_{_REPLICAS}_processes": _hit_share(requests, _spread(_REPLICAS), PrefixCache, blocks),
            "anywhere_no_key": _hit_share(requests, _none, _Anywhere, blocks),
            "anywhere_spread": _hit_share(requests, _spread(), _Anywhere, blocks),
            "oracle": _hit_share(requests, None, PrefixCache, blocks),
        }
        figures |= {f"{name}_{arm}_hit_share": share for arm, share in arms.items()}
        for other, target in (("no_key", 1.0), ("one_key", 1.0), ("oracle", 0.95)):
            ratio = f"{name}_spread_to_{other}_ratio"
            figures[ratio] = arms["spread"] / arms[other]
            reach.append(Reach(figure=ratio, op=">=", target=target))
    figures["requests"] = len(requests)
    conditions = {
        "trace": source,
        "machines": _MACHINES,
        "requests_per_key_per_minute": _PER_MINUTE,
        "expiry_s": _EXPIRY_NS // 10**9,
        "minimum_tokens": _MINIMUM_TOKENS,
    }
    return Report(figures=figures, reach=tuple(reach), conditions=conditions)
