"""Floor 3: the decisions inside an engine, without torch and without a clock of their own.

Time comes in as `now_s`, the step's outcome as a `StepResult`; nothing here waits, reads a file or
starts a thread. The same classes therefore run in the engine process, in tests under virtual time
and in simulations. `scheduler` is the way in; `engine` drives it and owns the tensors.

    scheduler           plan, apply: the loop's two halves
    ├── waiting_queue   who is next              admission        may the next one start now
    ├── step_cost       how long would it take   prefill_allowance   so how much prefill fits
    ├── preemption      who gives way            deadlines        whose answer came too late
    └── kv_manager      blocks of all groups
        ├── kv_group        one group: which blocks, until when, resumable where
        │   ├── block_pool      reference counts, eviction order, key → block
        │   └── block_tables    row of a sequence → its blocks, as the runner reads them
        ├── prefix_keys     what makes two prefixes equal
        └── prefix_pending  prefixes that a running sequence is about to compute
"""
