"""The fastest model above the quality bar answers, and the record says why it was chosen."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fastlane
from fastlane import ConfigurationError, Connection, OpenAI, Routing
from fastlane.catalog import Catalog, CatalogModel, ModelPrice, Route, Task
from fastlane.providers import ProviderFacts, registered
from tests.attempts.scripted import MESSAGES, Script, Upstream, answer, answer_after, model_at, refuse
from tests.plays.facts import fact
from tests.waiting import Form

pytestmark = pytest.mark.usefixtures("trusting_peers")


def anew(upstream: Upstream, usually: Script) -> Upstream:
    upstream.scripts.clear()
    upstream.asked.clear()
    upstream.usually = usually
    return upstream


@pytest.fixture
def near(running: tuple[Upstream, Upstream]) -> Upstream:
    return anew(running[0], answer("from near"))


@pytest.fixture
def far(running: tuple[Upstream, Upstream]) -> Upstream:
    # As the catalog says it, or else it would soon be known better.
    return anew(running[1], answer_after(0.1, "from far"))


def catalog_of(near: Upstream, far: Upstream, **tasks: Task) -> Catalog:
    """ "near" is the faster, "far" the better."""
    return Catalog(
        models=(
            model_at(near, first_token_s=0.01, quality=40.0, price=ModelPrice(input=1.0, output=2.0)),
            model_at(far, first_token_s=0.5, quality=60.0, context_tokens=100_000),
        ),
        tasks=tasks,
    )


def client_of(near: Upstream, play: Routing, **options: Any) -> Any:
    plays = [Connection(http2="require"), play]
    return OpenAI(
        api_key="sk-own", base_url=near.url, max_retries=0, raise_play_errors=True, only_plays=plays, **options
    )


def asked(client: Any, model: str = "fastlane/auto", **more: Any) -> str:
    answered = client.chat.completions.create(**{"model": model, "messages": MESSAGES, **more})
    return str(answered.choices[0].message.content or "").strip()


def test_catalog_is_read_from_its_file(tmp_path: Any) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[[models]]\nname = "one"\nfirst_token_s = [[1_000, 0.3]]\ntokens_per_s = 90.0\n')
    assert isinstance(Routing(path).catalog, Catalog)
    with pytest.raises(ConfigurationError, match=r"absent\.toml"):
        Routing(tmp_path / "absent.toml")


def test_fastest_model_above_min_quality_answers(near: Upstream, far: Upstream) -> None:
    with client_of(near, Routing(catalog_of(near, far), exploration=0.0)) as client:
        assert asked(client) == "from near"
        assert client.last_call.routing.price == pytest.approx((5 * 1.0 + 2 * 2.0) / 1e6)
        assert json.loads(json.dumps(client.last_call.to_dict()))["routing"]["chosen"] == "near"
        assert asked(client, "fastlane/auto?min_quality=50") == "from far"
        record = client.last_call
    routed = record.routing
    assert (routed.asked, routed.min_quality, routed.reason) == ("fastlane/auto?min_quality=50", 50.0, "only")
    assert (routed.chosen, routed.model) == ("far", "far")
    rejected = next(one for one in routed.candidates if one.model == "near")
    assert rejected.why_not == "quality 40 is below 50"
    assert rejected.predicted_s is None
    chosen = routed.candidates[0]
    assert chosen.predicted_s is not None
    assert chosen.first_token_s is not None
    assert routed.actual_s is not None
    assert near.asked[-1]["model"] == "near-1"
    assert far.asked[-1]["model"] == "far-1"


@pytest.mark.parametrize(
    ("settings", "route", "answered"),
    [
        ({"min_quality": 50}, Route(), "from far"),
        ({"min_quality": 50}, Route(min_quality=0), "from near"),
        ({}, Route(task="triage"), "from far"),
        ({}, Route(task="other"), "from near"),
    ],
)
def test_min_quality_is_that_of_the_call_its_task_or_the_play(
    settings: dict[str, Any], route: str, answered: str, near: Upstream, far: Upstream
) -> None:
    catalog = catalog_of(near, far, triage=Task(min_quality=50, min_pass_rate=0.8), other=Task())
    with client_of(near, Routing(catalog, exploration=0.0, **settings)) as client:
        assert asked(client, route) == answered


def test_unknown_task_is_refused_unless_quality_is_given(near: Upstream, far: Upstream) -> None:
    catalog, complaint = (
        catalog_of(near, far, invoice=Task(min_quality=50)),
        r"\('invoice'\), got 'invioce'.*give a min_quality",
    )
    with pytest.raises(ConfigurationError, match=complaint):
        Routing(catalog, task="invioce")
    with client_of(near, Routing(catalog, exploration=0.0)) as client:
        for model in (Route(task="invioce"), "fastlane/auto?task=invioce"):
            with pytest.raises(ConfigurationError, match=complaint):
                asked(client, model)
        with pytest.raises(ConfigurationError, match="got 'invoice '"):
            asked(client, "fastlane/auto?task=invoice ")
        assert asked(client, Route(task="invioce", min_quality=50)) == "from far"
    with client_of(near, Routing(catalog, task="mail", min_quality=50, exploration=0.0)) as client:
        assert asked(client) == asked(client, Route(task="letters")) == "from far"
    with client_of(near, Routing(catalog_of(near, far), exploration=0.0)) as client:
        asked(client, Route(task="of any name"))


def test_unknown_facts_are_refused_when_the_play_is_made() -> None:
    model = CatalogModel(name="tiny", facts="vlmm", first_token_s=((1_000, 0.3),), tokens_per_s=90.0)
    with pytest.raises(
        ConfigurationError, match=r'models\[0\] \("tiny"\): facts: expected one of .*vllm.*, got \'vlmm\''
    ):
        Routing(Catalog(models=(model,)))
    with registered(ProviderFacts(slug="vlmm")):
        Routing(Catalog(models=(model,)))


def test_long_prompt_goes_to_a_model_with_enough_context(near: Upstream, far: Upstream) -> None:
    small = model_at(near, first_token_s=0.01, context_tokens=1_000)
    with client_of(near, Routing(Catalog(models=(small, model_at(far, first_token_s=0.5))), exploration=0.0)) as client:
        assert asked(client) == "from near"
        assert asked(client, messages=[{"role": "user", "content": "river " * 3_000}]) == "from far"


@pytest.mark.parametrize(("validate", "answered_by"), [(True, "near"), (False, "far")])
def test_unvalidated_schema_goes_to_provider_that_enforces_it(
    validate: bool, answered_by: str, near: Upstream, far: Upstream
) -> None:
    """BoundedOutput(validate=False) checks no answer, so that the provider has to keep to all of the schema."""
    near.usually, far.usually = answer('{"name":"near"}'), answer('{"name":"far"}')
    structured = {"strict": fact(True), "refused_keywords": fact(["pattern"])}
    facts = ProviderFacts.model_validate({"slug": "x", "structured": structured})
    name = {"type": "string", "pattern": "^[a-z]+$"}
    schema = {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "river", "strict": True, "schema": schema}}
    with (
        registered(facts, origins=[near.url]),
        client_of(near, Routing(catalog_of(near, far), exploration=0.0)) as client,
    ):
        checking = client.with_plays(fastlane.BoundedOutput(validate=validate))
        assert json.loads(asked(checking, response_format=form)) == {"name": answered_by}


def test_key_that_is_not_set_keeps_a_model_out(
    near: Upstream, far: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = model_at(near, first_token_s=0.01, api_key_env="NEAR_KEY")
    with client_of(near, Routing(Catalog(models=(keyed, model_at(far, first_token_s=0.5))), exploration=0.0)) as client:
        assert asked(client) == "from far"
        record = client.last_call
    assert f"Routing leaves out the model {keyed.name!r} of the catalog: NEAR_KEY is not set" in caplog.text
    monkeypatch.setenv("NEAR_KEY", "sk-near")
    with client_of(near, Routing(Catalog(models=(keyed, model_at(far, first_token_s=0.5))), exploration=0.0)) as client:
        assert asked(client) == "from near"
    assert near.keys[-1] == "Bearer sk-near"
    assert "NEAR_KEY is not set" in [one.why_not for one in record.routing.candidates]


@pytest.mark.parametrize("fails", [False, True])
def test_record_lists_adaptations_for_the_answering_model(fails: bool, near: Upstream, far: Upstream) -> None:
    near.scripts = [refuse(503)] if fails else []
    models = (
        model_at(near, first_token_s=0.01, parameters={"temperature": False}),
        model_at(far, first_token_s=0.5, max_output_tokens=40),
    )
    with client_of(near, Routing(Catalog(models=models), exploration=0.0, streams=False)) as client:
        assert asked(client, temperature=0.125, max_tokens=60, user="a-user") == f"from {'far' if fails else 'near'}"
        changes = client.last_call.changes

    assert "temperature" not in near.asked[0]
    assert changes[:2] == (
        ("left out user, which far is not known to take", "lowered max_tokens to the most that far takes")
        if fails
        else ("left out user, which near is not known to take", "left out temperature, which near does not take")
    )
    assert not any(value in str(changes) for value in ("0.125", "a-user"))


def test_routing_learns_the_faster_model(near: Upstream, far: Upstream) -> None:
    def slowly(upstream: Upstream, stream: Any, body: dict[str, Any]) -> None:
        stream.hold_for(0.15)
        answer("from near")(upstream, stream, body)

    near.usually, far.usually = slowly, answer("from far")
    models = (model_at(near, first_token_s=0.01), model_at(far, first_token_s=0.02, quality=60.0))
    play = Routing(Catalog(models=models), exploration=0.0)
    with client_of(near, play) as client:
        assert asked(client) == "from near"
        asked(client, Route(min_quality=50))  # what has no connection yet takes longer
        texts = [asked(client) for _ in range(20)]
    assert texts[-5:] == ["from far"] * 5
    report = {row["name"]: row for row in play.report()}
    assert report["near"]["share_of_calls"] < report["far"]["share_of_calls"]


def test_calls_of_other_endpoints_cannot_be_routed(near: Upstream, far: Upstream) -> None:
    with (
        client_of(near, Routing(catalog_of(near, far))) as client,
        pytest.raises(ConfigurationError, match="/embeddings are not routed"),
    ):
        client.embeddings.create(model="fastlane/auto", input="x")
    assert near.asked == far.asked == []


@pytest.mark.parametrize("strict", [True, False])
def test_unreadable_route_raises_with_known_options(strict: bool, near: Upstream, far: Upstream) -> None:
    plays = [Connection(http2="require"), Routing(catalog_of(near, far))]
    with (
        OpenAI(api_key="sk-own", base_url=near.url, raise_play_errors=strict, only_plays=plays) as client,
        pytest.raises(ConfigurationError, match="min_quality"),
    ):
        asked(client, "fastlane/auto?quality=99")
    assert near.asked == far.asked == []


@pytest.mark.parametrize("model", ["fastlane/fast", "fastlane/auto-2", "fastlane/", " Fastlane/fast?task=x"])
@pytest.mark.parametrize("is_routed", [True, False])
def test_route_misspelt_is_an_error_that_lists_the_valid_ones(
    model: str, is_routed: bool, form: Form, near: Upstream, far: Upstream
) -> None:
    complaint = r'expected "fastlane/auto" or "fastlane/auto\?name=value&…" with min_quality, task, min_pass_rate'
    plays = [Connection(), *([Routing(catalog_of(near, far))] if is_routed else [])]
    with form.make(fastlane, api_key="sk-own", base_url=near.url, plays=plays) as client:
        chat = client.chat.completions.create
        for send, given in (
            (chat, {"messages": MESSAGES}),
            (chat, {"messages": MESSAGES, "stream": True}),
            (client.responses.create, {"input": "?"}),
            (client.embeddings.create, {"input": "?"}),
        ):
            with pytest.raises(ConfigurationError, match=complaint) as raised:
                send(model=model, **given)
            assert repr(model) in str(raised.value)
    assert near.asked == far.asked == []


@pytest.mark.parametrize("model", ["fastlane", "fastlane-1", "org/fastlane/fast", "fastlanes/auto"])
def test_model_name_without_our_prefix_is_sent_as_it_is(model: str, near: Upstream, far: Upstream) -> None:
    with client_of(near, Routing(catalog_of(near, far))) as client:
        asked(client, model)
        record = client.last_call
    assert [one["model"] for one in near.asked] == [model]
    assert record.routing is None


def test_too_long_prompt_keeps_the_model_eligible(near: Upstream, far: Upstream) -> None:
    near.usually, far.usually = refuse(400, code="context_length_exceeded"), answer_after(0.4, "from far")
    with client_of(near, Routing(catalog_of(near, far), exploration=0.0)) as client:
        assert {asked(client) for _ in range(4)} == {"from far"}
        records = client.calls
    assert len(near.asked) > 1
    assert not [one.why_not for record in records if record.routing for one in record.routing.candidates if one.why_not]


def test_output_lengths_are_learned_from_streams_without_usage(near: Upstream, far: Upstream) -> None:
    with client_of(near, Routing(catalog_of(near, far), exploration=0.0)) as client:
        for _ in range(6):
            for _ in client.chat.completions.create(
                model="fastlane/auto?min_quality=50", messages=MESSAGES, stream=True
            ):
                pass
        records = client.calls
    assert "stream_options" not in far.asked[-1]
    expected: list[Any] = [record.routing.candidates[0].decode_s for record in records if record.routing is not None]
    assert expected[0] is not None
    assert expected[-1] < expected[0] / 5
