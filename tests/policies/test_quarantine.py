"""Poisoned requests are found; those who happened to be there are not condemned."""

import random

import msgspec
import pytest

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.policies.config import QuarantineConfig
from steelyard.policies.quarantine import Quarantine, Rider, Stance, fingerprint


def key(name: str) -> bytes:
    return name.encode()


def rider(name: str, began_s: float = 0.0, *, has_tokens: bool = False) -> Rider:
    return Rider(key(name), began_s, has_tokens)


def request(**changes: object) -> GenerateRequest:
    base = GenerateRequest(
        request_id="r", prompt_ids=(1, 2, 3), sampling=SamplingParams(max_tokens=8), tenant="t"
    )
    return msgspec.structs.replace(base, **changes)


def test_a_request_that_dies_twice_at_once_is_refused() -> None:
    quarantine = Quarantine(QuarantineConfig())
    assert not quarantine.has_verdicts
    first = quarantine.on_death([rider("poison")], 1.0)
    assert first[key("poison")] is Stance.APART
    second = quarantine.on_death([rider("poison", 1.1)], 1.2)
    assert second[key("poison")] is Stance.REFUSED
    assert quarantine.has_verdicts and quarantine.is_refused(key("poison"), 2.0)


def test_streams_in_flight_at_a_death_move_freely() -> None:
    quarantine = Quarantine(QuarantineConfig())
    riders = [rider(f"stream {i}", has_tokens=True) for i in range(20)]
    stances = quarantine.on_death(riders, 1.0)
    assert set(stances.values()) == {Stance.PROBATION}


def test_a_poisoned_prompt_among_streams_is_found_at_the_second_death() -> None:
    quarantine = Quarantine(QuarantineConfig())
    streams = [rider(f"stream {i}", has_tokens=True) for i in range(20)]
    stances = quarantine.on_death([*streams, rider("poison")], 1.0)
    assert stances[key("poison")] is Stance.APART
    others = [rider(f"other {i}", has_tokens=True) for i in range(20)]
    stances = quarantine.on_death([*others, rider("poison", 1.1)], 1.2)
    assert stances[key("poison")] is Stance.REFUSED
    assert all(stances[other.fingerprint] is Stance.PROBATION for other in others)


def test_a_deep_queue_is_not_held_up_after_a_first_death() -> None:
    quarantine = Quarantine(QuarantineConfig())
    stances = quarantine.on_death([rider(f"waiting {i}") for i in range(50)], 1.0)
    assert set(stances.values()) == {Stance.PROBATION}


def test_several_with_two_strikes_are_kept_apart_until_a_death_tells() -> None:
    quarantine = Quarantine(QuarantineConfig())
    names = [f"waiting {i}" for i in range(8)]
    quarantine.on_death([rider(name) for name in names], 1.0)
    stances = quarantine.on_death([rider(name, 1.1) for name in names], 1.2)
    assert set(stances.values()) == {Stance.APART}
    assert not quarantine.has_verdicts
    stances = quarantine.on_death([rider("waiting 3", 1.3)], 1.4)
    assert stances == {key("waiting 3"): Stance.REFUSED}
    assert not quarantine.is_refused(key("waiting 4"), 2.0)


def test_long_streams_that_outlive_unrelated_deaths_are_not_refused_lightly() -> None:
    quarantine = Quarantine(QuarantineConfig())
    for death in range(3):
        stances = quarantine.on_death([rider("long", float(death), has_tokens=True)], death + 0.5)
        assert stances[key("long")] is not Stance.REFUSED


def test_a_request_that_kills_late_every_time_is_refused_in_the_end() -> None:
    quarantine = Quarantine(QuarantineConfig())
    deaths = 0
    while not quarantine.has_verdicts:
        quarantine.on_death([rider("late", float(deaths), has_tokens=True)], deaths + 0.5)
        deaths += 1
    assert deaths == 4


def test_equal_requests_on_replicas_that_die_together_get_one_strike() -> None:
    """A popular prompt is in flight everywhere when a rack loses its power."""
    quarantine = Quarantine(QuarantineConfig())
    for _ in range(10):
        stances = quarantine.on_death([rider("hello"), rider("hello")], 1.0)
    assert stances[key("hello")] is not Stance.REFUSED
    later = quarantine.on_death([rider("hello", 0.5)], 1.01)
    assert later[key("hello")] is not Stance.REFUSED, "it began before the first death"


def test_whoever_ends_well_is_cleared() -> None:
    quarantine = Quarantine(QuarantineConfig())
    quarantine.on_death([rider("unlucky")], 1.0)
    quarantine.on_success(key("unlucky"))
    stances = quarantine.on_death([rider("unlucky", 2.0)], 3.0)
    assert stances[key("unlucky")] is Stance.APART


def test_success_elsewhere_does_not_lift_a_verdict() -> None:
    quarantine = Quarantine(QuarantineConfig())
    quarantine.on_death([rider("poison")], 1.0)
    quarantine.on_death([rider("poison", 1.1)], 1.2)
    quarantine.on_success(key("poison"))
    assert quarantine.is_refused(key("poison"), 2.0)


def test_verdicts_expire() -> None:
    quarantine = Quarantine(QuarantineConfig(keep_s=60.0))
    quarantine.on_death([rider("poison")], 1.0)
    quarantine.on_death([rider("poison", 1.1)], 1.2)
    assert not quarantine.is_refused(key("poison"), 100.0)
    assert not quarantine.has_verdicts


def test_memory_is_bounded() -> None:
    quarantine = Quarantine(QuarantineConfig(max_entries=100))
    for death in range(50):
        quarantine.on_death([rider(f"{death}/{i}", death) for i in range(100)], death + 0.5)
    assert len(quarantine) == 100


@pytest.mark.parametrize("kills_after_tokens", [False, True])
def test_no_innocent_is_ever_refused_while_a_poisoned_request_goes_round(
    kills_after_tokens: bool,
) -> None:
    """Every death takes a random crowd along; crowds move together, as the stances allow."""
    for seed in range(200):
        chance = random.Random(seed)
        quarantine = Quarantine(QuarantineConfig())
        crowd = [f"innocent {i}" for i in range(30)]
        on_first = {name: chance.random() < 0.5 for name in crowd}
        stances = dict.fromkeys([*crowd, "poison"], Stance.CLEAR)
        now_s = 0.0
        deaths = 0
        while not quarantine.has_verdicts:
            deaths += 1
            apart = stances["poison"] is Stance.APART
            riders = [
                rider(
                    name,
                    now_s,
                    has_tokens=chance.random() < 0.8 or stances[name] is Stance.CLEAR,
                )
                for name in crowd
                if on_first[name] and not (apart and stances[name] is not Stance.CLEAR)
            ]
            riders.append(rider("poison", now_s, has_tokens=kills_after_tokens and deaths == 1))
            now_s += 1.0
            given_out = quarantine.on_death(riders, now_s)
            for fingerprint_, stance in given_out.items():
                assert stance is not Stance.REFUSED or fingerprint_ == key("poison"), seed
            stances = {name: given_out.get(key(name), Stance.CLEAR) for name in [*crowd, "poison"]}
            assert deaths <= 5


def test_fingerprints_ignore_ids_and_seeds_but_not_what_is_asked() -> None:
    base = fingerprint(request())
    assert base == fingerprint(request(request_id="other"))
    assert base == fingerprint(request(sampling=SamplingParams(max_tokens=8, seed=99)))
    assert base != fingerprint(request(prompt_ids=(1, 2, 4)))
    assert base != fingerprint(request(sampling=SamplingParams(max_tokens=9)))
    assert base != fingerprint(request(tenant="other"))
