"""Who is ready, who is doubtful, and when judgement itself is doubted."""

import random

from steelyard.contract import EngineStatus
from steelyard.policies.config import HealthConfig
from steelyard.policies.health import ReplicaHealth
from steelyard.policies.rotation import Rotation
from steelyard.policies.routing import Pool, Target


class Fleet:
    """Targets with their health."""

    def __init__(self, count: int, max_ejected_share: float = 0.5) -> None:
        self.rotation = Rotation(max_ejected_share=max_ejected_share)
        self.targets = [Target(index) for index in range(count)]
        self.healths = [ReplicaHealth(HealthConfig(), 0.0) for _ in range(count)]
        self.wanted = [True] * count
        for index in range(count):
            self.answer(index)

    def answer(self, index: int) -> None:
        self.healths[index].begin_probe(1.0)
        self.healths[index].on_answer(1.0, EngineStatus(state="ready", epoch="e"))
        self.update(index)

    def eject(self, index: int) -> None:
        for _ in range(5):
            self.healths[index].on_error(1.0)
        self.update(index)

    def update(self, index: int) -> bool:
        target, health = self.targets[index], self.healths[index]
        return self.rotation.update(target, health, is_wanted=self.wanted[index])


def indices(pool: Pool) -> set[int]:
    return {target.index for target in pool}


def test_healthy_replicas_are_ready_and_suspects_doubtful() -> None:
    fleet = Fleet(3)
    fleet.healths[1].on_lost(2.0)
    fleet.healths[1].state = type(fleet.healths[1].state).SUSPECT
    fleet.update(1)
    assert indices(fleet.rotation.ready) == {0, 2}
    assert indices(fleet.rotation.doubtful) == {1}


def test_becoming_ready_is_told_once() -> None:
    fleet = Fleet(2)
    assert not fleet.update(0)
    fleet.eject(0)
    fleet.answer(0)
    assert indices(fleet.rotation.ready) == {1}
    fleet.healths[0].begin_probe(50.0)
    fleet.healths[0].on_answer(50.0, EngineStatus(state="ready", epoch="e"))
    assert fleet.update(0)
    assert not fleet.update(0)


def test_a_few_ejected_are_left_alone_and_too_many_are_all_tried() -> None:
    fleet = Fleet(10)
    for index in range(5):
        fleet.eject(index)
        assert not fleet.rotation.is_panicking
    assert indices(fleet.rotation.doubtful) == set()
    fleet.eject(5)
    assert fleet.rotation.is_panicking
    assert indices(fleet.rotation.doubtful) == {0, 1, 2, 3, 4, 5}
    assert indices(fleet.rotation.ready) == {6, 7, 8, 9}


def test_panic_ends_when_enough_are_back() -> None:
    fleet = Fleet(4)
    for index in range(3):
        fleet.eject(index)
    assert fleet.rotation.is_panicking
    fleet.healths[0].begin_probe(50.0)
    fleet.healths[0].on_answer(50.0, EngineStatus(state="ready", epoch="e"))
    fleet.update(0)
    assert not fleet.rotation.is_panicking and indices(fleet.rotation.doubtful) == set()


def test_the_only_replica_is_tried_even_when_ejected() -> None:
    fleet = Fleet(1)
    fleet.eject(0)
    assert indices(fleet.rotation.doubtful) == {0}


def test_absent_draining_unwanted_and_weightless_replicas_are_in_no_tier() -> None:
    fleet = Fleet(5)
    fleet.healths[0].on_absence(2.0, "engine_lost")
    fleet.healths[1].on_draining(2.0)
    fleet.wanted[2] = False
    fleet.targets[3].weight = 0.0
    for index in range(5):
        fleet.update(index)
    assert indices(fleet.rotation.ready) == {4}
    assert indices(fleet.rotation.doubtful) == set()


def test_the_absent_do_not_count_towards_panic() -> None:
    """Nine of ten machines are off: the tenth's judgement of itself is not in doubt."""
    fleet = Fleet(10)
    for index in range(9):
        fleet.healths[index].on_absence(2.0, "engine_lost")
        fleet.update(index)
    assert not fleet.rotation.is_panicking


def test_tiers_are_disjoint_whatever_happens() -> None:
    chance = random.Random(1)
    fleet = Fleet(8)
    for step in range(3000):
        index = chance.randrange(8)
        health, now_s = fleet.healths[index], float(step)
        match chance.randrange(6):
            case 0:
                health.on_absence(now_s, "engine_lost")
            case 1:
                health.on_stall(now_s)
            case 2:
                health.on_error(now_s)
            case 3:
                fleet.wanted[index] = not fleet.wanted[index]
            case _:
                health.begin_probe(now_s)
                health.on_answer(now_s, EngineStatus(state="ready", epoch="e"))
        fleet.update(index)
        ready, doubtful = fleet.rotation.tiers
        assert not indices(ready) & indices(doubtful)
        assert all(fleet.wanted[i] for i in indices(ready) | indices(doubtful))
    for target in fleet.targets:
        fleet.rotation.remove(target)
    assert not len(fleet.rotation.ready) and not len(fleet.rotation.doubtful)
