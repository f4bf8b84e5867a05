"""The table of findings: what each row is about, which problems it may have, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..records.bursts import BUFFERING_ADVICE

State = Literal["seen", "notable", "failed", "left out"]
"""What became of a check.

- seen: it ran; what it saw is as it should be, or just is so
- notable: it ran, and what it saw costs something or needs a change
- failed: it ran, and nothing can be said because of an error
- left out: it did not run; the finding says why
"""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "reaching the provider": ("DNS", "TCP", "TLS"),
    "the connection": (
        "HTTP", "HTTP/2 limits", "round trip", "HTTP version", "a new connection", "a request without a model",
        "idle life",
    ),
    "the provider": ("models", "what it is", "first call"),
    "request bodies": ("/chat/completions", "/responses", "/completions"),
    "streaming": ("the stream", "first token", "chunks", "token counts", "end"),
    "prompt cache": ("equal prompts",),
    "structured outputs": ("json_object", "json_schema"),
    "limits and tokens": ("rate-limit headers", "tokens"),
}  # fmt: skip
"""The rows of the report, in groups."""


PROBLEMS: Mapping[State, Mapping[str, str]] = {
    "left out": {
        "proxy": "Calls go through the proxy too.",
        "not run": "",
    },
    "failed": {
        "no address": "Check the spelling of the URL, and whether this machine can resolve names at all.",
        "connection refused": "Nothing listens on port {port} there: check the port, and whether the server runs.",
        "connect timeout": "Nothing answers: a firewall, a VPN that is off, or the wrong host. Try another network.",
        "unreachable": "There is no network route: check the connection, VPN and proxy settings.",
        "certificate not trusted": "Not trusted here. If it should be, name its authority's file in SSL_CERT_FILE.",
        "no TLS": "Nothing on port {port} speaks TLS as this machine does: check the port. Does it want http://?",
        "wants https": "Does it want https://?",
        "broken off": "",
        "no output": "The model wrote nothing within the limit of tokens.",
        "cut off": "",
        "error": "",
    },
    "notable": {
        "slow DNS": "Paid again by every new connection unless something caches it; a kept connection pays nothing.",
        "not encrypted": "Key and prompts can be read by everybody on the network path.",
        "old TLS": "One round trip more than TLS 1.3 takes, for every new connection.",
        "small window": "A longer body waits for a window update, a round trip each time.",
        "few streams": "More calls at once than that open further connections.",
        "intermediary": "TCP is answered from nearer than HTTP: something stands in between, such as a proxy.",
        "no HTTP/2": "Each call at the same time needs a connection of its own: keep them open (Connection()).",
        "not kept": "The server closes connections after a response: every call pays for a new one.",
        "closed when idle": "Calls further apart than {lived:g} s pay for a new connection.",
        "dead when idle": "The network path drops idle connections silently: a call then waits for a timeout.",
        "answered like https": "Does it want https://?",
        "key needed": "Put a key into {key_source}.",
        "401": "Put a valid key of this provider into {key_source}.",
        "402": "Pay the provider, or use another key.",
        "403": "Ask for the right with the provider, or use another key.",
        "404": "Check --model, and the URL's path: it mostly ends in /v1.",
        "429": "Wait, or look at the account's limits.",
        "5xx": "Try again later.",
        "refused": "",
        "redirect": "Use the URL that it leads to.",
        "no list": "Is that an OpenAI-style API?",
        "not listed": "Check --model; some providers list not all.",
        "limit ignored": "It ignores {ignored}: answers can grow longer than they may.",
        "not answered": "",
        "bursts": f"They come in bursts: what is shown stutters, whatever the client does. {BUFFERING_ADVICE}",
        "no usage": "Tokens of streams are not known here: rates and costs can only be estimated.",
        "no end": "A stream that broke off can look like one that has ended.",
        "cache not reported": "Whether prompts are cached can only be seen from times.",
        "nothing cached": "It may need a longer prompt, more time, another server of theirs, or to be asked for it.",
        "format refused": "",
        "format ignored": "The server ignores the format: check what comes before you use it.",
        "not counted": "",
    },
    "seen": {
        "pays for connections": "Connection() keeps connections open, client.warm() opens one ahead.",
        "can be encoded": "RequestEncoding() can send these.",
    },
}
"""Everything that can be wrong, by what it means for a check, with what to do. In braces: what was measured."""

_ADVICE: Mapping[str, tuple[State, str]] = {
    problem: (state, advice) for state, rows in PROBLEMS.items() for problem, advice in rows.items()
}
_WORST: tuple[State, ...] = ("seen", "notable", "failed", "left out")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFact:
    """One measured fact, as a place in a facts file and its value."""

    path: tuple[str, ...]
    """Keys of the facts file, such as ("encodings", "/chat/completions")."""
    value: Any
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProviderFinding:
    """One row of the report. Holds no text of a prompt or an answer, and no key."""

    looked_at: str
    seen: str
    problems: tuple[str, ...] = ()
    advice: str = ""
    value: Any = None
    """The figures behind `seen`, as JSON values."""
    facts: tuple[MeasuredFact, ...] = ()

    @property
    def group(self) -> str:
        row = self.looked_at.partition(", ")[0]
        return next(group for group, rows in GROUPS.items() if self.looked_at in rows or row in rows)

    @property
    def state(self) -> State:
        return max((_ADVICE[problem][0] for problem in self.problems), key=_WORST.index, default="seen")


def found(
    looked_at: str,
    seen: str,
    *problems: str | bool | None,
    value: Any = None,
    facts: Iterable[MeasuredFact] = (),
    **measured: Any,
) -> ProviderFinding:
    """Return a finding with the advice for its problems. Falsy problems are dropped; `measured` fills the advice in."""
    named = tuple(problem for problem in problems if isinstance(problem, str) and problem)
    advice = " ".join(_ADVICE[problem][1].format(**measured) for problem in named).strip()
    return ProviderFinding(looked_at, seen, named, advice, value, tuple(facts))


def in_ms(duration_ns: float | None) -> float | None:
    """Return a duration for JSON: milliseconds to the microsecond."""
    return None if duration_ns is None else round(duration_ns / 1e6, 3)
