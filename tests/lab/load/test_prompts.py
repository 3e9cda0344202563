"""Words of prompts: repeatable, of the right length, shared exactly where the plan says so."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.checkpoints import open_checkpoint
from steelyard.lab.load import (
    CacheState,
    Fixed,
    MooncakeTrace,
    OpenLoop,
    PromptFile,
    PromptMaker,
    Synthetic,
    TokenScale,
    TraceReplay,
    Uniform,
    Workload,
    make_plan,
    new_nonce,
    probe_text,
    steady,
)
from steelyard.lab.load.words import WORDS
from steelyard.text import open_tokenizer

_RANDOM = Synthetic(input=Uniform(20, 200), output=Fixed(5), turns=Fixed(2))


def test_words_are_different_and_nearly_always_one_token(smollm2_path: Path) -> None:
    assert len(set(WORDS)) == 512
    tokenizer = open_tokenizer(open_checkpoint(smollm2_path).vocabulary)
    assert sum(len(tokenizer.encode(f" {word}")) for word in WORDS) <= 515


def test_a_prompt_of_n_tokens_has_about_n_tokens(smollm2_path: Path) -> None:
    tokenizer = open_tokenizer(open_checkpoint(smollm2_path).vocabulary)
    maker = _maker(_workload(Synthetic(input=Fixed(1000), output=Fixed(5))))
    counts = [len(tokenizer.encode(maker.user_text(session, 0))) for session in range(20)]
    assert counts == [pytest.approx(1000, rel=0.01)] * 20


def test_the_same_run_says_the_same_words_again() -> None:
    nonce = new_nonce()
    first, second = (_texts(_maker(_workload(_RANDOM), nonce=nonce)) for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)


def test_a_cold_run_begins_as_no_other_run_does() -> None:
    first, second = (_texts(_maker(_workload(_RANDOM))) for _ in range(2))
    assert _opening(first[0]) != _opening(second[0])
    assert len({_opening(text) for text in first[::2]}) == 1, "a run shares one beginning"


def test_a_kept_cache_gets_the_same_prompts_in_every_run() -> None:
    workload = _workload(_RANDOM, cache=CacheState.KEEP)
    assert _texts(_maker(workload)) == _texts(_maker(workload))


def test_a_warm_run_repeats_a_small_deck() -> None:
    content = Synthetic(input=Uniform(20, 200), output=Fixed(5))
    maker = _maker(_workload(content, cache=CacheState.WARM))
    assert maker.user_text(0, 0) == maker.user_text(64, 0)
    assert maker.user_text(0, 0) != maker.user_text(1, 0)


def test_a_cold_run_never_repeats_itself() -> None:
    path_maker = _maker(_workload(Synthetic(input=Fixed(50), output=Fixed(5)), seconds=1))
    assert path_maker.user_text(0, 0) != path_maker.user_text(10, 0)


def test_sessions_of_a_group_share_their_beginning_and_nothing_else() -> None:
    content = Synthetic(
        input=Fixed(150), output=Fixed(5), shared_prefix_tokens=100, prefix_groups=2
    )
    workload = _workload(content, cache=CacheState.KEEP)
    plan = make_plan(workload)
    maker = _maker(workload)
    beginnings: dict[int, set[str]] = {}
    rests = set()
    for session in range(30):
        words = maker.user_text(session, 0).split()
        assert len(words) == 150
        beginnings.setdefault(int(plan.sessions.prefix_group[session]), set()).add(
            " ".join(words[:100])
        )
        rests.add(" ".join(words[100:]))
    assert [len(texts) for texts in beginnings.values()] == [1, 1]
    assert beginnings[0] != beginnings[1]
    assert len(rests) == 30


def test_equal_blocks_of_a_trace_become_equal_text(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [7, 8, 9]},
        {"timestamp": 1, "input_length": 1124, "output_length": 5, "hash_ids": [7, 8, 10]},
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    maker = _maker(Workload(arrivals=TraceReplay(), content=MooncakeTrace(str(path))))
    first, second = (maker.user_text(session, 0).split() for session in (0, 1))
    assert [len(first), len(second)] == [1300, 1124]
    shared = sum(a == b for a, b in zip(first, second, strict=False))
    assert 1024 + 8 <= shared <= 1024 + 8 + 5, "two blocks, the nonce, and chance"


@given(st.integers(1, 5000), st.floats(0.5, 4), st.floats(0, 50))
def test_the_scale_gives_words_that_make_the_tokens(
    tokens: int, per_word: float, overhead: float
) -> None:
    words = TokenScale(per_word, overhead).words(tokens, with_overhead=True)
    if words:
        assert overhead + per_word * words == pytest.approx(tokens, abs=per_word)


def test_a_scale_goes_through_two_measured_points() -> None:
    assert TokenScale.fitted((10, 32), (110, 152)) == TokenScale(1.2, 20.0)
    assert TokenScale.fitted((10, 0), (110, 0)) == TokenScale(), "a server that counts nothing"


def test_real_prompts_stay_as_they_are_behind_the_nonce(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("Why is the sky blue?\n")
    content = PromptFile(path=str(path), output=Fixed(5))
    kept = _maker(_workload(content, cache=CacheState.KEEP)).user_text(0, 0)
    assert kept == "Why is the sky blue?"
    cold = _maker(_workload(content))
    assert cold.user_text(0, 0).endswith("\n\nWhy is the sky blue?")
    assert cold.user_text(0, 0) != cold.user_text(1, 0), "the second round is cold as well"


def test_probes_have_the_asked_number_of_words() -> None:
    assert len(probe_text(64, new_nonce()).split()) == 64


def _workload(content, *, cache: CacheState = CacheState.COLD, seconds: float = 20) -> Workload:
    return Workload(arrivals=OpenLoop(steady(10, seconds)), content=content, cache=cache)


def _maker(workload: Workload, nonce: str | None = None) -> PromptMaker:
    return PromptMaker(
        make_plan(workload),
        seed=workload.seed,
        cache=workload.cache,
        nonce=nonce or new_nonce(),
        scale=TokenScale(),
    )


def _texts(maker: PromptMaker) -> list[str]:
    return [maker.user_text(session, turn) for session in range(20) for turn in range(2)]


def _opening(text: str) -> str:
    return " ".join(text.split()[:8])
