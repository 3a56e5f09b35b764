"""Candidates: what a change is, which of them the traffic can tell apart, and which is smaller."""

from __future__ import annotations

from replay.policies.catalogue import CATALOGUE, resolve
from replay.policies.effect import Traffic
from replay.policies.knobs import Client, Policy
from replay.recommend.candidates import candidate, different, known_as, pairs, single_moves
from replay.recommend.capacity import between
from replay.recommend.changes import CHANGES, WHO, Present, allowed

CANCEL = resolve("cancel", Policy(name="base", client=Client(max_attempts=4)))
PRESENT = Present(CANCEL, 8.0, 1, "push")
IMPATIENT = Traffic(timeouts=True, leavers=False, repeats=False)


def test_every_step_of_every_change_is_a_policy() -> None:
    for replicas, notices in ((1, "push"), (4, "timer")):
        for move in single_moves(CHANGES, Present(CANCEL, 8.0, replicas, notices)):
            made = candidate([move], CANCEL).policy
            assert made.name.replace("_", "").replace("-", "").isalnum()


def test_no_change_is_called_as_a_policy_of_the_catalogue() -> None:
    assert not {change.name for change in CHANGES} & set(CATALOGUE)
    assert len({change.name for change in CHANGES}) == len(CHANGES)


def test_only_what_somebody_can_change_is_changed() -> None:
    for who in WHO:
        assert {change.who for change in allowed([who])} == {who}
    assert allowed(WHO) == list(CHANGES)


def test_settings_come_before_code_and_one_change_before_two() -> None:
    moves = single_moves(CHANGES, PRESENT)
    setting = next(m for m in moves if m[0].effort == "config")
    code = next(m for m in moves if m[0].effort == "code")
    one, coded, two = (candidate(m, CANCEL) for m in ([setting], [code], [setting, code]))
    assert one.size < coded.size < two.size


def test_what_the_traffic_cannot_tell_apart_is_tried_once() -> None:
    moves = single_moves(CHANGES, PRESENT)
    seen: set[Policy] = set()
    found = different([candidate([m], CANCEL) for m in moves], CANCEL, IMPATIENT, seen)
    names = [c.policy.name for c in found]
    assert "orphan_ttl_s-0" not in names  # as it is
    assert "max_attempts-1" in names
    again = different([candidate([m], CANCEL) for m in moves], CANCEL, IMPATIENT, seen)
    assert again == []
    calm = different([candidate([m], CANCEL) for m in moves], CANCEL, Traffic(False, False, False), set())
    assert all(change.name != "orphan_ttl_s" for c in calm for change, _ in c.moves)


def test_a_pair_is_of_two_changes() -> None:
    for pair in pairs(single_moves(CHANGES, PRESENT), CANCEL):
        (first, _), (second, _) = pair.moves
        assert first is not second


def test_a_candidate_that_the_catalogue_has_is_known_by_its_name() -> None:
    moves = {(c.name, s.name): (c, s) for c, s in single_moves(CHANGES, PRESENT)}
    made = candidate([moves["join_retries", ""], moves["orphan_ttl_s", "none"]], CANCEL)
    assert known_as(made.policy, CANCEL, IMPATIENT) == "coalesce"
    assert known_as(candidate([moves["orphan_ttl_s", "10"]], CANCEL).policy, CANCEL, IMPATIENT) is None


def test_sizes_of_a_fleet_double_and_then_close_in() -> None:
    assert between(2, None, 32) == [4, 8, 16, 32]
    assert between(16, None, 17) == []
    assert between(4, 8, 32) == [5, 6, 7]
    assert between(100, 200, 800) == [120, 140, 160, 180]
