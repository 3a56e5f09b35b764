"""Settings from several places: who wins, where each comes from, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.config import layered, log_settings, phases_of, policies_of, profiles_of, read_experiment
from replay.errors import BadConfig
from replay.phases import Phase, around
from replay.policies.catalogue import CATALOGUE
from replay.policies.knobs import Policy
from replay.profiles.profile import EngineSettings
from replay.settings import converted
from trace_schema.fold import ObservedClient


def experiment(**settings: Any) -> Any:
    return layered([("flag", settings)])[0]


def test_later_layers_win_key_by_key_and_are_named() -> None:
    found, sources = layered(
        [
            ("log", {"client": {"max_attempts": 7, "backoff_base_s": 1.0}}),
            ("file.yaml", {"client": {"max_attempts": 5}, "seeds": 3}),
            ("flag", {"seeds": 2}),
        ]
    )
    assert (found.client.max_attempts, found.client.backoff_base_s, found.seeds) == (5, 1.0, 2)
    assert sources["client.max_attempts"] == (5, "file.yaml")
    assert sources["client.backoff_base_s"] == (1.0, "log")
    assert sources["seeds"] == (2, "flag")
    assert sources["fleet.replicas"] == (1, "default")


def test_what_a_log_shows_of_its_clients_is_a_setting() -> None:
    shown = log_settings(ObservedClient(timeouts=3, retries=2, max_attempts=4))
    assert shown == {"client": {"max_attempts": 4}, "as_logged": "cancel"}
    assert log_settings(ObservedClient(timeouts=3))["as_logged"] == "no_retry"
    assert log_settings(ObservedClient()) == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seds": 3}, r"unknown key 'seds'; did you mean seeds\?"),
        ({"fleet": {"replica": 3}}, r"unknown key 'fleet.replica'; did you mean fleet.replicas"),
        ({"fleet": [{"replicas": 3}, {"replica": 3}]}, r"unknown key 'fleet\[1\].replica'; did you mean"),
        ({"network": {"cancel": 1}}, r"did you mean network.cancel_s"),
        ({1: 3}, "unknown key '1'"),
        ({"seeds": "x"}, "seeds: expected `int`, got `str`"),
        ({"seeds": -1}, "seeds: expected `int` >= 1"),
        ({"seeds": 10**12}, "seeds: expected `int` <= 100000"),
        ({"client": 5}, "client: expected `object`, got `int`"),
        ({"client": {"timeout_s": float("nan")}}, "client.timeout_s: expected `float` >= 0.0"),
        ({"client": {"backoff_jitter": 1.5}}, "client.backoff_jitter: expected `float` <= 1.0"),
        ({"overload": {"start_s": 5}}, "overload: object missing required field `end_s`"),
        ({"overload": {"start_s": 5, "end_s": 5}}, "overload: end_s must come after start_s"),
        ({"policies": []}, "policies: expected `array` of length >= 1"),
        ({"policies": ["cancel", 4]}, r"policies\[1\]: expected"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_valid(settings: Any, words: str) -> None:
    with pytest.raises(BadConfig, match=f"settings: .*{words}"):
        layered([("flag", settings)])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"client": {"max_attempts": 2}}, "needs a name"),
        ({"name": "a b"}, "needs a name"),
        ({"name": "../x"}, "needs a name"),
        ({"name": "x", "based_on": "cancl"}, "'x': based_on: unknown policy 'cancl'; did you mean cancel"),
        ({"name": "x", "based_on": ["cancel"]}, "based_on: unknown policy"),
        ({"name": "x", "gatway": {}}, "unknown key 'gatway'; did you mean gateway"),
        ({"name": "x", "gateway": {"orphan_tl_s": 1}}, "did you mean gateway.orphan_ttl_s"),
        ({"name": "x", "client": {"max_attempts": 0}}, "'x': client.max_attempts: expected `int` >= 1"),
        ({"name": "x", "client": 3}, "'x': client: expected `object`"),
        ({"name": "cancel"}, "'cancel' is given twice"),
    ],
)
def test_a_wrong_policy_is_named_with_its_key(policy: Any, words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        policies_of(experiment(policies=["cancel", policy]))


def test_a_policy_of_ones_own_turns_only_its_knobs() -> None:
    mine = {"name": "mine", "based_on": "coalesce", "gateway": {"orphan_ttl_s": 10}, "client": {"timeout_s": 3}}
    (policy,) = policies_of(experiment(policies=[mine], client={"timeout_s": 9.0, "max_attempts": 2}))
    assert policy.name == "mine"
    assert policy.gateway.coalesce
    assert policy.gateway.orphan_ttl_s == 10
    assert policy.gateway.result_ttl_s > 0
    assert (policy.client.timeout_s, policy.client.max_attempts) == (3, 2)


def test_all_policies_are_the_default_and_the_logs_own_comes_first() -> None:
    assert [p.name for p in policies_of(experiment())] == list(CATALOGUE)
    names = [p.name for p in policies_of(experiment(as_logged="coalesce"))]
    assert names[0] == "coalesce"
    assert sorted(names) == sorted(CATALOGUE)


def test_paths_in_an_experiment_file_count_from_the_file(tmp_path: Path, profile_file: str) -> None:
    place = tmp_path / "below"
    place.mkdir()
    (place / "profile.json").write_bytes(Path(profile_file).read_bytes())
    (place / "mine.yaml").write_text("name: mine\nbased_on: cancel\n")
    (place / "experiment.yaml").write_text("profile: profile.json\npolicies: [no_retry, mine.yaml]\n")
    found = layered([("file", read_experiment(str(place / "experiment.yaml")))])[0]
    assert profiles_of(found)[0].name == "small"
    assert [p.name for p in policies_of(found)] == ["no_retry", "mine"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must hold keys and values"),
        ("[1, 2]", "must hold keys and values"),
        ("seeds: 2\nclient: [\n", "line 3: is not YAML"),
        ("client: {max_atempts: 3}", r"did you mean client.max_attempts"),
        ("profile: 3", "profile: expected `str | array | null`"),
    ],
)
def test_a_broken_experiment_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=rf"experiment.yaml.*{words.replace('|', '[|]')}") as caught:
        read_experiment(str(path))
    assert "\n" not in str(caught.value)


def test_settings_of_the_engine_are_laid_over_the_profiles(profile_file: str) -> None:
    engine = profiles_of(experiment(profile=profile_file, engine={"num_blocks": 77}))[0].engine
    assert (engine.num_blocks, engine.block_size) == (77, 16)
    with pytest.raises(BadConfig, match=r"did you mean engine\.num_blocks"):
        profiles_of(experiment(profile=profile_file, engine={"num_blok": 77}))
    with pytest.raises(BadConfig, match=r"settings: engine.num_blocks: expected `int` >= 2"):
        profiles_of(experiment(profile=profile_file, engine={"num_blocks": 1}))
    with pytest.raises(BadConfig, match="give one with --profile"):
        profiles_of(experiment())


def test_an_overload_that_is_given_beats_the_one_that_was_found() -> None:
    found = [Phase("all", 0.0)]
    assert phases_of(experiment(), found) == found
    assert phases_of(experiment(overload={"start_s": 3, "end_s": 4}), found) == around(3.0, 4.0)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"mode": "as"}, EngineSettings, "x: mode: invalid enum value 'as'; valid: sync, async"),
        ({"client": {"timeout_kind": "ttl"}}, Policy, "client.timeout_kind: .*; valid: total, first_token, idle"),
        ({"cancellation": {"detection": "tell"}}, Policy, "cancellation.detection: .*; valid: push, poll, "),
    ],
)
def test_a_word_that_is_not_valid_is_answered_with_those_that_are(
    settings: dict[str, Any], kind: type[Any], words: str
) -> None:
    with pytest.raises(BadConfig, match=words):
        converted({"name": "x", **settings} if kind is Policy else settings, kind, "x")
