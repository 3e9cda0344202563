"""The small parts around the loop: step age, threads, stop signals, the fake runner's tokens."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine import threads
from steelyard.engine.fake_runner import FakeModel, fake_token
from steelyard.engine.watchdog import StepAge


def test_a_step_ages_with_every_look_and_the_next_one_is_new() -> None:
    age = StepAge()
    assert age.look() == 0
    age.begin()
    assert [age.look() for _ in range(4)] == [0, 1, 2, 3]
    age.end()
    age.begin()
    assert [age.look() for _ in range(2)] == [0, 1]
    age.end()
    assert [age.look() for _ in range(2)] == [0, 0]


def test_many_short_steps_between_looks_never_age() -> None:
    age = StepAge()
    for _ in range(100):
        age.begin()
        assert age.look() == 0
        age.end()


def test_threads_asked_for_are_taken_as_they_are() -> None:
    assert threads.resolve_threads(7) == 7


def test_the_default_is_no_more_than_the_cpus_this_process_may_use() -> None:
    assert 1 <= threads.resolve_threads(0) <= len(os.sched_getaffinity(0))


def test_hyperthreads_of_one_core_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(siblings)
    monkeypatch.setattr(threads, "_TOPOLOGY", tmp_path)
    monkeypatch.setattr(threads, "_CGROUP_QUOTA", tmp_path / "none")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    assert threads.resolve_threads(0) == 2


@pytest.mark.parametrize(
    ("quota", "expected"), [("150000 100000", 1), ("50000 100000", 1), ("max 100000", 4)]
)
def test_a_containers_quota_bounds_the_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, expected: int
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    monkeypatch.setattr(threads, "_CGROUP_QUOTA", file)
    monkeypatch.setattr(threads, "_TOPOLOGY", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    assert threads.resolve_threads(0) == expected


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_stop_interrupts_what_may_be_interrupted_and_only_that(when: str) -> None:
    script = f"""
import os, signal, time
from steelyard.engine.stop_signals import LoadInterrupted, StopSignals
stop = StopSignals(has_parent=False)
def send():
    os.kill(os.getpid(), signal.SIGTERM)
try:
    if {when!r} == "before":
        send()
    with stop.interrupting():
        send()
        time.sleep(10)
except LoadInterrupted:
    send()
    print("interrupted once", stop.is_requested, len(stop.wakeup.recv(100)) > 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=5, check=True
    )
    assert done.stdout == "interrupted once True True\n"


@given(
    st.integers(2, 1000), st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_fake_tokens_are_in_the_vocabulary_and_never_the_end(
    vocab_size: int, seed: int, previous: int, position: int
) -> None:
    model = FakeModel(vocab_size=vocab_size, end_token_id=vocab_size // 2)
    token = fake_token(model, seed=seed, previous=previous, position=position)
    assert 0 <= token < vocab_size
    assert token != model.end_token_id


def test_fake_tokens_depend_on_seed_position_and_the_token_before() -> None:
    model = FakeModel(vocab_size=100_000)
    base = fake_token(model, seed=1, previous=2, position=3)
    assert base != fake_token(model, seed=2, previous=2, position=3)
    assert base != fake_token(model, seed=1, previous=3, position=3)
    assert base != fake_token(model, seed=1, previous=2, position=4)
