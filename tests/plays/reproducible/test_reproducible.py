"""The play `Reproducible`, through clients of both kinds."""

from __future__ import annotations

import json
from typing import Any

import fastlane
from fastlane import Connection
from fastlane.plays import Reproducible
from fastlane.providers import ProviderFacts, registered
from tests.call_peer import ANSWER, JSON, MESSAGES, CallPeer, Reply, ours
from tests.plays.facts import fact
from tests.waiting import Form

SEEDED = ProviderFacts(slug="seeded", name="Seeded", parameters={"seed": fact(True)})


def answer(fingerprint: str) -> Reply:
    return Reply(body=json.dumps({**ANSWER, "system_fingerprint": fingerprint}).encode())


def asked(peer: CallPeer, form: Form, **arguments: Any) -> tuple[dict[str, Any], Any]:
    """Make a call to a provider that takes seeds. Returns the last body sent and the section of the record."""
    with registered(SEEDED, origins=[peer.url]), ours(peer, form) as made:
        client = made.copy(only_plays=[Connection(http2="never"), Reproducible()])
        result = client.chat.completions.create(**{"model": "m", "messages": MESSAGES, **arguments})
        if arguments.get("stream"):
            list(result)
        return json.loads(peer.asked[-1].body), client.last_call.get(Reproducible.section)


def test_equal_requests_have_equal_seeds(one_peer: CallPeer, form: Form) -> None:
    first, section = asked(one_peer, form, temperature=0.5)
    again, _ = asked(one_peer, form, temperature=0.5, user="a-user", stream=False)
    other, _ = asked(one_peer, form, temperature=0.6)

    assert first["seed"] == again["seed"] != other["seed"]
    assert 0 <= first["seed"] < 2**31
    assert section.seed == first["seed"]


def test_seed_of_the_caller_stays(one_peer: CallPeer, form: Form) -> None:
    body, section = asked(one_peer, form, seed=7)

    assert body["seed"] == 7
    assert section.seed == 7


def test_refused_seed_is_taken_back(one_peer: CallPeer, form: Form) -> None:
    refusal = {"error": {"message": "Unsupported parameter: seed", "param": "seed", "type": "invalid_request_error"}}
    one_peer.replies[:] = [Reply(400, (JSON,), json.dumps(refusal).encode())]

    body, section = asked(one_peer, form)

    assert [("seed" in json.loads(request.body)) for request in one_peer.asked] == [True, False]
    assert "seed" not in body
    assert section.seed is None


def test_changed_fingerprint_is_reported(one_peer: CallPeer, form: Form) -> None:
    one_peer.replies[:] = [answer("fp_1"), answer("fp_1"), answer("fp_2"), answer("fp_3")]

    sections = [asked(one_peer, form)[1] for _ in range(3)]
    sections.append(asked(one_peer, form, temperature=0.1)[1])

    assert [section.fingerprint_changed for section in sections if section] == [None, False, True, None]
    assert sections[2].attributes()["fastlane.system_fingerprint.changed"] is True


def test_report_counts_changed_backends(one_peer: CallPeer) -> None:
    one_peer.replies[:] = [answer("fp_1"), answer("fp_2")]
    with registered(SEEDED, origins=[one_peer.url]), ours(one_peer) as made:
        client: fastlane.OpenAI = made.copy(only_plays=[Connection(http2="never"), Reproducible()])
        for _ in range(2):
            client.chat.completions.create(model="m", messages=MESSAGES)

        assert "1 of 1 repeated requests met another backend" in str(client.report())
