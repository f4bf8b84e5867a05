"""Checks that call the model, each as small as can be: first call, request bodies, stream, cache, formats, counts."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import httpx2
from jsonschema_rs import is_valid

from .._clock import now_ns
from ..protocol.content import choices_kind
from ..protocol.events import EventReader
from ..records.attempts import Form
from ..records.bursts import bursts_of
from ..records.formatting import counted, duration
from ..records.quantiles import quantile
from ._findings import MeasuredFact, ProviderFinding, found, in_ms
from ._session import CHAT, DoctorSession, StatusError, json_object, of_status, printable

if TYPE_CHECKING:
    from ..providers import ProviderFacts

PROMPT = "Say yes."

# The names under which servers know the limit of an answer, and limits: reasoning models refuse very small ones.
_LIMITS = (
    ("max_completion_tokens", 1),
    ("max_tokens", 1),
    ("max_completion_tokens", 16),
    ("max_tokens", 16),
    ("max_completion_tokens", 256),
)


def look_first(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Find the name and the smallest value of the output limit. Raises StatusError if no call is answered."""
    refused: list[tuple[str, int]] = []
    ignored: list[str] = []
    answer = None
    for name, tokens in _LIMITS:
        if name in ignored:
            continue  # once was enough: answers without a limit cost
        session.limit_field, session.least_tokens = name, tokens
        reply = session.ask(session.body(PROMPT, tokens))
        if reply.status in (400, 422):
            refused.append((name, tokens))
        elif reply.status != 200:
            raise StatusError(reply.status)
        else:
            answer = answer or reply
            output = at_path(reply.data, "usage.completion_tokens")
            if not isinstance(output, int) or output <= tokens:
                break
            ignored.append(name)
    if answer is None:
        raise StatusError(reply.status)
    name, tokens = session.limit_field, session.least_tokens
    # One that was refused for fewer tokens than this may have been too small rather than unknown.
    unknown = tuple(each for each, least in refused if each != name and least >= tokens)
    session.first_headers = answer.headers
    session.count_paths[CHAT] = {}
    counted_tokens(session, answer.data, CHAT)
    words = f"answered in {duration(answer.taken_ns / 1e9)}, limited to {counted(tokens, 'token')} by {name}"
    tier = at_path(answer.data, "service_tier")
    if isinstance(tier, str):
        words += f", served in tier {printable(tier)!r}"
    if unknown:
        words += f"; {' and '.join(unknown)} refused"
    takes = dict.fromkeys(unknown, False) | ({} if name in ignored else {name: True})
    value = {"ms": in_ms(answer.taken_ns), "limit_field": name, "least_tokens": tokens, "tier": tier}
    value |= {"refused_limits": list(unknown), "ignored_limits": ignored}
    facts = [MeasuredFact(path=("parameters", each), value=taken) for each, taken in takes.items()]
    problem = bool(ignored) and "limit ignored"
    yield found("first call", words, problem, value=value, facts=facts, ignored=" and ".join(ignored))


# Request bodies: the same call in each form, compared by its input tokens

ENDPOINTS = (CHAT, "/responses", "/completions")
FORMS: tuple[Form, ...] = tuple(form for form in get_args(Form) if form != "json")

# Characters of one to four bytes, and those that JSON escapes: a server that mangles bodies counts other tokens.
_ODD_PROMPT = 'Say yes. Zürich, Ωmega, 東京, 🚄, "quoted", back\\slash, line\nend.'
# These refuse the caller, or everybody at the moment, and say nothing of the body.
_SAYS_NOTHING = frozenset({401, 402, 403, 407, 408, 425, 429})


def look_bodies(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Send a call in each form to each endpoint. Where no form is taken and one is unknown, there is no fact."""
    bodies: dict[str, dict[str, Any]] = {
        CHAT: session.body(_ODD_PROMPT, 1),
        "/responses": {"model": session.model, "input": _ODD_PROMPT, "max_output_tokens": 16, "store": False},
        "/completions": {"model": session.model, "prompt": _ODD_PROMPT, "max_tokens": 1},
    }
    for endpoint in ENDPOINTS[:1] if session.settings.quick else ENDPOINTS:
        expected, status = _counted(session, bodies[endpoint], endpoint, "json")
        if status != 200:
            words = f"not for this model: its plain JSON was not answered ({_in_words(status)})"
            yield found(endpoint, words, endpoint == CHAT and "not answered", value={"status": status})
            continue
        outcomes = {form: _judge(expected, *_counted(session, bodies[endpoint], endpoint, form)) for form in FORMS}
        together: dict[str, list[str]] = {}
        for form, (_, words) in outcomes.items():
            together.setdefault(words, []).append(form)
        taken = [form for form, (outcome, _) in outcomes.items() if outcome == "taken"]
        unknown = [form for form, (outcome, _) in outcomes.items() if outcome in ("broken", "undecided")]
        facts = []
        if taken or not unknown:
            note = f"unknown: {', '.join(unknown)}" if unknown else ""
            path = ("encodings", endpoint)
            facts.append(MeasuredFact(path=path, value=["json", *taken], note=note))
        if any(form.startswith("msgpack") for form in taken):
            facts.append(MeasuredFact(path=("media_types", "msgpack"), value=session.msgpack_type))
        words = "; ".join(f"{', '.join(forms)} {words}" for words, forms in together.items())
        value = {form: {"outcome": outcome, "reason": reason} for form, (outcome, reason) in outcomes.items()}
        yield found(endpoint, words, bool(taken) and "can be encoded", value=value, facts=facts)


def _counted(
    session: DoctorSession, body: Mapping[str, Any], endpoint: str, form: Form
) -> tuple[int | None, int | str]:
    """Return the input tokens that the server counted, and the status or the class of an error."""
    try:
        answer = session.ask(body, endpoint, form)
    except httpx2.HTTPError as error:
        return None, type(error).__name__
    return counted_tokens(session, answer.data, endpoint)[0], answer.status


def _judge(expected: int | None, counted: int | None, status: int | str) -> tuple[str, str]:
    """Judge the response to an encoded call beside that to the plain one: the outcome, and the reason."""
    if isinstance(status, str) or status >= 500:  # which may be of that moment
        return "broken", f"broken: {_in_words(status)}"
    if status in _SAYS_NOTHING:
        return "undecided", f"unknown: {_in_words(status)}"
    if status >= 300:
        return "refused", "refused"
    if expected is None or counted is None:
        return "undecided", "unknown: answered without a count of tokens"
    if counted != expected:
        return "misread", f"read otherwise: {counted} tokens, and {expected} as JSON"
    return "taken", "taken"


def _in_words(status: int | str) -> str:
    return f"no answer ({status})" if isinstance(status, str) else of_status(status)


# Streams

STREAM_TOKENS = 64
_COUNTING = "Count from 1 to 40 in words, one number after the other, separated by commas. Nothing else."
_MOST_STREAM_BYTES = 4 * 1_048_576


class StreamEvent(NamedTuple):
    """One event of a stream, with the moment at which its bytes were read, and their number with line ends."""

    at_ns: int
    size: int
    data: str


@dataclass(kw_only=True)
class StreamedAnswer:
    """An answer that came in events. Moments are nanoseconds since the request was sent."""

    headers_ns: int = 0
    events: list[StreamEvent]
    broken_off: str | None = None
    """Class name of the error that ended it; None if it ended by itself."""

    @property
    def output(self) -> list[StreamEvent]:
        """The events that carry text, reasoning or a tool's arguments."""
        choices = [(event, json_object(event.data).get("choices")) for event in self.events]
        return [event for event, found in choices if isinstance(found, list) and choices_kind(found) is not None]

    @property
    def last(self) -> Mapping[str, Any]:
        """The last event that brings token counts; empty where none does."""
        documents = (json_object(event.data) for event in reversed(self.events))
        return next((each for each in documents if isinstance(each.get("usage"), dict)), {})


def stream(session: DoctorSession, prompt: str, tokens: int) -> StreamedAnswer:
    """Call the model for a stream with its usage at the end. Raises StatusError and httpx2.HTTPError."""
    body = session.body(prompt, tokens, stream=True, stream_options={"include_usage": True})
    streamed = StreamedAnswer(events=[])
    started = now_ns()
    response = session.http.send(session.request(body), stream=True)
    try:
        streamed.headers_ns = now_ns() - started
        if response.status_code != 200:
            raise StatusError(response.status_code)
        reader, size = EventReader(), 0
        for piece in response.iter_bytes():
            at_ns, size = now_ns() - started, size + len(piece)
            streamed.events += [
                StreamEvent(at_ns, len(b"data: \n\n") + len(data), data.decode("utf-8", "replace").strip())
                for data in reader.feed(piece)
            ]
            if size > _MOST_STREAM_BYTES or at_ns > session.settings.answer_timeout_s * 1e9:
                break
    except httpx2.HTTPError as error:
        streamed.broken_off = type(error).__name__
    finally:
        response.close()
    return streamed


def look_stream(session: DoctorSession) -> Iterator[ProviderFinding]:
    yield from judge_stream(stream(session, _COUNTING, STREAM_TOKENS))


def judge_stream(streamed: StreamedAnswer) -> Iterator[ProviderFinding]:
    if streamed.broken_off is not None:
        yield found("the stream", f"broken off ({streamed.broken_off})", "broken off")
    output = streamed.output
    if not output:
        yield found("the stream", "no output came", "no output")
    else:
        first_ns = output[0].at_ns
        ahead_ns = first_ns - streamed.headers_ns
        words = duration(first_ns / 1e9)
        if ahead_ns > 5_000_000:
            words += f"; the headers came {duration(ahead_ns / 1e9)} earlier"
        yield found("first token", words, value={"ms": in_ms(first_ns), "head_earlier_ms": in_ms(ahead_ns)})
        yield _judge_chunks(output, at_path(streamed.last, "usage.completion_tokens"))
    if streamed.last:
        fact = MeasuredFact(path=("parameters", "stream_options.include_usage"), value=True)
        yield found("token counts", "at the end of the stream, when asked for", facts=[fact])
    else:
        yield found("token counts", "none, although asked for", "no usage")
    if streamed.broken_off is None:
        done = any(event.data == "[DONE]" for event in streamed.events)
        yield found("end", "marked by [DONE]" if done else "not marked by [DONE]", not done and "no end")


def _judge_chunks(output: Sequence[StreamEvent], tokens: Any) -> ProviderFinding:
    moments, count = [event.at_ns for event in output], len(output)
    gaps = sorted(later - earlier for earlier, later in pairwise(moments))
    reads, size = len(set(moments)), sum(event.size for event in output) / count
    value: dict[str, Any] = {"events": count, "reads": reads, "bytes_per_event": round(size, 1)}
    words = f"{count} with output, {size:.0f} bytes each"
    if isinstance(tokens, int) and tokens:
        value["tokens_per_event"] = round(tokens / count, 3)
        words += f", {tokens / count:.1f} tokens each"
    if gaps:
        median_ns, late_ns = quantile(gaps, 0.5), quantile(gaps, 0.9)
        value |= {"gap_p50_ms": in_ms(median_ns), "gap_p90_ms": in_ms(late_ns)}
        words += f"; gaps p50 {duration(median_ns / 1e9)}, p90 {duration(late_ns / 1e9)}"
    return found("chunks", words, bursts_of(moments, 0) is not None and "bursts", value=value)


# The prompt cache

# OpenAI's minimum, which others have adopted; the facts on record come first.
_USUAL_MINIMUM = 1_024
# Above the minimum by so much that a tokenizer which makes fewer tokens of a text still gets there.
_ABOVE = 2
_CHARACTERS_PER_TOKEN = 4.5


class CacheReading(NamedTuple):
    """What one of two equal requests showed: None if an answer does not say, which is not 0."""

    input_tokens: int | None
    cached_tokens: int | None
    first_ns: int | None
    """From sending it to the first output."""


def cache_tokens(known: ProviderFacts | None) -> int:
    """Return how many tokens a prompt needs for the provider to cache it."""
    fact = known.cache.minimum_tokens if known is not None else None
    minimum = fact.value if fact is not None and fact.value is not None else _USUAL_MINIMUM
    return int(minimum * _ABOVE)


def look_cache(session: DoctorSession) -> Iterator[ProviderFinding]:
    tokens = cache_tokens(session.known)
    line = "{}. river stone lamp north seven paper cloud garden silver window train bread."
    count = int(tokens * _CHARACTERS_PER_TOKEN / len(line)) + 1
    # It begins with something new, so that it is in no cache.
    prompt = "\n".join([f"Notes {secrets.token_hex(8)}.", *map(line.format, range(count)), PROMPT])
    first = _read_cache(session, prompt)
    pause_s = 0.0 if session.settings.quick else session.settings.cache_pause_s
    threading.Event().wait(pause_s)
    yield judge_cache(first, _read_cache(session, prompt), pause_s)


def _read_cache(session: DoctorSession, prompt: str) -> CacheReading:
    streamed = stream(session, prompt, 1)
    output = streamed.output
    return CacheReading(*counted_tokens(session, streamed.last, CHAT), output[0].at_ns if output else None)


def judge_cache(first: CacheReading, second: CacheReading, pause_s: float) -> ProviderFinding:
    times = ""
    if first.first_ns is not None and second.first_ns is not None:
        times = f"; first token {duration(first.first_ns / 1e9)}, then {duration(second.first_ns / 1e9)}"
    value: dict[str, Any] = {
        "input_tokens": second.input_tokens,
        "cached_tokens": [first.cached_tokens, second.cached_tokens],
    }
    value["first_token_ms"] = [in_ms(first.first_ns), in_ms(second.first_ns)]
    cached = second.cached_tokens
    problem, facts = "", []
    of = f" of {second.input_tokens:,}" if second.input_tokens is not None else ""
    words = f"{cached:,}" if cached else "none"
    words += f"{of} tokens of the second of two equal requests{times}"
    if cached is None:
        problem = "cache not reported"
        words = f"the answers do not say how many tokens were cached, which is not none{times}"
    elif cached == 0:
        problem = "nothing cached"
        words += f", {pause_s:g} s apart"
    elif first.cached_tokens:
        words += f"; of the first {first.cached_tokens:,}, although it was new"
    else:
        note = f"{cached} of {second.input_tokens} tokens"
        facts = [MeasuredFact(path=("cache", "automatic"), value=True, note=note)]
    return found("equal prompts", words, problem, value=value, facts=facts)


# Structured outputs

FORMAT_TOKENS = 200
_SCHEMA = {
    "type": "object",
    "properties": {
        "mood": {"type": "string", "enum": ["calm", "rough"]},
        "waves": {"type": "integer"},
        "is_blue": {"type": "boolean"},
    },
    "required": ["mood", "waves", "is_blue"],
    "additionalProperties": False,
}

# The prompts ask for prose: an answer in the format then comes from the format and not from good will.
# The word JSON has to be in the messages for `json_object`, as OpenAI documents it.
_PROSE = "Reply with one short sentence about the sea."
_FORMATS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("json_object", f"{_PROSE} The note 'JSON' below is for the archive.\nJSON", {}),
    ("json_schema", _PROSE, {"json_schema": {"name": "sea", "strict": True, "schema": _SCHEMA}}),
)


def look_formats(session: DoctorSession) -> Iterator[ProviderFinding]:
    kept: list[str] = []
    for name, prompt, schema in _FORMATS:
        answer = session.ask(session.body(prompt, FORMAT_TOKENS, response_format={"type": name, **schema}))
        finding = judge_format(name, answer.status, answer.data, kept)
        kept += [name] * bool(finding.facts)
        yield finding


def judge_format(name: str, status: int, data: Mapping[str, Any], kept: Sequence[str] = ()) -> ProviderFinding:
    """Judge whether an answer keeps to its format. `kept`: the formats that were kept before."""
    if status != 200:
        problem = "format refused" if status in (400, 404, 422) else "error"
        return found(name, f"refused ({of_status(status)})", problem)
    finish, text = (at_path(data, f"choices.0.{path}") for path in ("finish_reason", "message.content"))
    answer = json_object(text if isinstance(text, str) else "")
    if answer and (name == "json_object" or is_valid(_SCHEMA, answer)):
        words = "an object of the schema" if name == "json_schema" else "a JSON object"
        fact = MeasuredFact(path=("structured", "formats"), value=[*kept, name])
        return found(name, f"{words}, although the prompt asked for prose", facts=[fact])
    if finish == "length":
        return found(name, f"not finished within {FORMAT_TOKENS} tokens", "cut off")
    # Nothing of the answer is quoted.
    wrong = "JSON, but not of the schema" if answer else "no JSON object"
    return found(name, f"taken, but the answer is {wrong}", "format ignored")


# What responses report

# Names of counts anywhere in `usage`; the facts on record of a provider come first.
_COUNTS: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"(?:prompt|input)_tokens"),
    "output": re.compile(r"(?:completion|output)_tokens"),
    "cached": re.compile(r"(?:prompt_)?cache_(?:hit|read)_(?:input_)?tokens|(?:\w+_)?cached_tokens"),
    "reasoning": re.compile(r"reasoning_tokens"),
}
# Names of headers, in lower case.
_LIMIT_HEADER = re.compile(r"rate-?limit|^retry-after")


def at_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path, in which a number is an index of a list; None if there is none."""
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def count_paths(answer: Mapping[str, Any], endpoint: str, known: ProviderFacts | None) -> dict[str, str]:
    """Return where a response has its token counts: kind of token to dotted path. Only numbers count."""
    fact = known.usage.get(endpoint) if known is not None else None
    written: Mapping[Any, str] = (fact.value if fact is not None else None) or {}
    found: dict[str, str] = {kind: path for kind, path in written.items() if _is_count(at_path(answer, path))}
    for path in _counts(answer.get("usage"), "usage"):
        for kind, pattern in _COUNTS.items():
            if pattern.fullmatch(path.rpartition(".")[2]) and path not in found.values():
                found.setdefault(kind, path)
    return found


def counted_tokens(session: DoctorSession, answer: Mapping[str, Any], endpoint: str) -> tuple[int | None, int | None]:
    """Return the input tokens that a response counts, and how many of them were cached. Remember where it does."""
    paths = count_paths(answer, endpoint, session.known)
    if paths:
        session.count_paths.setdefault(endpoint, {}).update(paths)
    whole, cached = (at_path(answer, paths[kind]) if kind in paths else None for kind in ("input", "cached"))
    return whole, cached


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counts(value: Any, path: str) -> Iterator[str]:
    """Yield the path of every count. Lists are left out: they hold the answer itself."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _counts(each, f"{path}.{name}")
    elif _is_count(value):
        yield path


def judge_answers(session: DoctorSession) -> Iterator[ProviderFinding]:
    """Judge what the responses so far report of rate limits, by which `RateLimits` learns what is left, and tokens."""
    if session.first_headers is not None:
        headers = {name.lower(): printable(value) for name, value in session.first_headers.items()}
        limits = {name: value for name, value in headers.items() if _LIMIT_HEADER.search(name)}
        words = ", ".join(f"{name}: {value}" for name, value in limits.items())
        fact = MeasuredFact(path=("rate_limits", "headers"), value=sorted(limits))
        yield found("rate-limit headers", words or "none", value=limits, facts=[fact] if limits else [])
    for endpoint, paths in session.count_paths.items():
        words = ", ".join(f"{kind}: {path}" for kind, path in paths.items()) or "not counted"
        fact = MeasuredFact(path=("usage", endpoint), value=dict(paths))
        problem = not paths and "not counted"
        yield found(f"tokens, {endpoint}", words, problem, value=paths, facts=[fact] if paths else [])
