"""A plan becomes the flat token batch that its docstring draws."""

import numpy as np

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.engine.step_batch import lay_out
from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.step_plan import Slice, StepPlan


def running(name: str, tokens: int, row: int) -> Sequence:
    request = GenerateRequest(
        request_id=name,
        prompt_ids=tuple(range(tokens)),
        sampling=SamplingParams(max_tokens=5),
    )
    sequence = Sequence(request)
    sequence.row = row
    return sequence


def test_slices_follow_one_another_each_at_its_own_positions() -> None:
    a, b, c = running("a", 9, row=2), running("b", 8, row=0), running("c", 2, row=1)
    batch = lay_out(StepPlan([Slice(a, 4, 3, False), Slice(b, 7, 1, True), Slice(c, 0, 2, True)]))
    assert batch.token_ids.tolist() == [4, 5, 6, 7, 0, 1]
    assert batch.positions.tolist() == [4, 5, 6, 7, 0, 1]
    assert batch.starts.tolist() == [0, 3, 4, 6]
    assert batch.contexts.tolist() == [7, 8, 2]
    assert batch.rows.tolist() == [2, 0, 1]
    assert batch.sample_rows.tolist() == [3, 5]
    assert batch.sampling == [b, c]


def test_slots_are_looked_up_in_each_sequences_own_row() -> None:
    a, b = running("a", 9, row=1), running("b", 8, row=0)
    batch = lay_out(StepPlan([Slice(a, 3, 3, False), Slice(b, 7, 1, True)]))
    table = np.asarray([[10, 11, 0], [20, 21, 22]], dtype=np.int32)
    assert batch.slots(table, 4).tolist() == [83, 84, 85, 47]
