"""What went wrong, in words that name the class and the status and quote nothing."""

from __future__ import annotations

import openai

from ._findings import Group, ProviderFinding


def refused(status: int, *, key_source: str = "OPENAI_API_KEY") -> tuple[str, str]:
    """What an HTTP status means here, and what to do about it."""
    match status:
        case 401:
            return "the key was not accepted", f"Put a valid key of this provider into {key_source}."
        case 402:
            return "there is no credit left", "Pay the provider, or use another key."
        case 403:
            return "the key may not do this", "Ask for the right with the provider, or use another key."
        case 404:
            return "there is no such model or path", "Check --model, and the URL's path: it mostly ends in /v1."
        case 400 | 422:
            return "the request was refused", ""
        case 429:
            return "too many requests, or no quota", "Wait, or look at the account's limits."
        case _ if status >= 500:
            return "the server has a fault of its own", "Try again later."
        case _:
            return "refused", ""


def of_status(status: int) -> str:
    """A status in words, with its number."""
    return f"{status}: {refused(status)[0]}"


def of_error(error: BaseException) -> str:
    """An error in words: its class, the status if there is one, and what lies underneath."""
    if isinstance(error, openai.APIStatusError):
        return f"{type(error).__name__}, status {error.status_code}"
    cause = error.__cause__
    below = f" <- {type(cause).__name__}" if cause is not None else ""
    return f"{type(error).__name__}{below}"


def failure(group: Group, looked_at: str, error: BaseException, key_source: str) -> ProviderFinding:
    """A look that an error ended."""
    advice = refused(error.status_code, key_source=key_source)[1] if isinstance(error, openai.APIStatusError) else ""
    return ProviderFinding(group=group, looked_at=looked_at, seen=of_error(error), state="failed", advice=advice)
