"""Which blocks each running sequence uses: one int32 matrix per KV group, read by the runner.

    row i:   0  0  17  4  9  0  0 …          i: `Sequence.row`
             ^^^^^                            given back (window) or never needed (state)
                   ^^^^^^^^                   columns [first, filled) hold blocks
                            ^^^^^^^           not yet needed

Column c belongs to positions [c · block_tokens, (c + 1) · block_tokens) of the sequence. 0 is the
null block: never handed out, so a stray read cannot touch another sequence. The matrix never
moves, and changes only inside `Scheduler` calls; reference counts are kept by `block_pool`.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["BlockTable"]


class BlockTable:
    """The block table of one group: `matrix` [rows, columns] and how far each row is filled."""

    __slots__ = ("filled", "first", "matrix")

    def __init__(self, rows: int, columns: int) -> None:
        self.matrix: NDArray[np.int32] = np.zeros((rows, columns), dtype=np.int32)
        self.first = [0] * rows
        """Column of the oldest block still held, by row."""
        self.filled = [0] * rows
        """One past the column of the newest block, by row."""

    def place(self, row: int, column: int, blocks: list[int]) -> None:
        """Append `blocks` at `column`, which is `filled` or, after skipped columns, beyond."""
        end = column + len(blocks)
        if self.filled[row] == 0:
            self.first[row] = column
        if len(blocks) == 1:
            self.matrix[row, column] = blocks[0]
        else:
            self.matrix[row, column:end] = blocks
        self.filled[row] = end

    def drop_before(self, row: int, column: int) -> list[int]:
        """Take out the blocks before `column`, oldest first; skipped columns count for nothing."""
        first = self.first[row]
        blocks = self.held(row, end=column)
        self.matrix[row, first:column] = 0
        self.first[row] = column
        return blocks

    def clear(self, row: int) -> list[int]:
        """Take out all blocks of a row, oldest first, and make it ready for another sequence."""
        blocks = self.drop_before(row, self.filled[row])
        self.first[row] = self.filled[row] = 0
        return blocks

    def held(self, row: int, *, end: int | None = None) -> list[int]:
        """The blocks before column `end` (None: all), oldest first. Changes nothing."""
        stop = self.filled[row] if end is None else end
        return [block for block in self.matrix[row, self.first[row] : stop].tolist() if block]

    def columns(self, row: int) -> NDArray[np.int32]:
        """The row from its oldest to its newest block, skipped columns as 0. A view."""
        return self.matrix[row, self.first[row] : self.filled[row]]

    def check_integrity(self, rows_in_use: set[int]) -> None:
        """Assert that nothing but the filled part of rows in use points at a block."""
        for row, (first, filled) in enumerate(zip(self.first, self.filled, strict=True)):
            assert 0 <= first <= filled <= self.matrix.shape[1]
            assert row in rows_in_use or filled == 0, f"row {row} is not in use"
            assert not self.matrix[row, :first].any() and not self.matrix[row, filled:].any()
