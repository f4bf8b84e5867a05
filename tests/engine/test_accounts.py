"""Calls share slots and rate limits by key, organisation and project, and the key itself is never kept."""

from __future__ import annotations

from typing import Any

import openai
from openai._models import FinalRequestOptions

from fastlane.engine.client_state import Account, Accounts

KEY = "sk-this-is-a-secret"


def account(accounts: Accounts, client: Any, headers: dict[str, str] | None = None) -> Account:
    options = FinalRequestOptions.construct(method="post", url="/chat/completions")
    if headers is not None:
        options.headers = headers
    return accounts.of(client, options)


def test_clients_with_the_same_key_share_an_account() -> None:
    with openai.OpenAI(api_key=KEY) as one, openai.OpenAI(api_key=KEY) as same, openai.OpenAI(api_key="sk-b") as other:
        first = account(Accounts(), one)
        assert account(Accounts(), same) == first
        assert not set(account(Accounts(), other)) & set(first)
        assert not set(account(Accounts(), one.with_options(project="p"))) & set(first)


def test_key_that_one_call_brings_is_that_calls_alone() -> None:
    with openai.OpenAI(api_key=KEY) as client:
        accounts = Accounts()
        usual = account(accounts, client)
        own = account(accounts, client, {"Authorization": "Bearer sk-tenant"})
        assert not set(own) & set(usual)
        assert account(accounts, client, {"authorization": "Bearer sk-tenant"}) == own
        assert account(accounts, client) == usual


def test_another_key_of_the_same_client_is_another_account() -> None:
    with openai.OpenAI(api_key=KEY) as client:
        accounts = Accounts()
        before = account(accounts, client)
        client.api_key = "sk-next"
        assert not set(account(accounts, client)) & set(before)


def test_callable_keys_are_separate_accounts_in_one_process() -> None:
    # The addresses of two callables say nothing to another process: there they have one name.
    with openai.OpenAI(api_key=lambda: "a") as one, openai.OpenAI(api_key=lambda: "b") as other:
        first, second = account(Accounts(), one), account(Accounts(), other)
        assert first.here != second.here
        assert first.anywhere == second.anywhere


def test_account_never_contains_the_key() -> None:
    with openai.OpenAI(api_key=KEY) as client:
        accounts = Accounts()
        found = account(accounts, client)
        assert KEY not in f"{found!r} {accounts!r}"
        assert KEY.encode() not in found.here
