"""Floor 3: the decisions inside an engine, without torch and without a clock of their own.

Time comes in as `now_s`, the step's outcome as a `StepResult`; nothing here waits, reads a file or
starts a thread. The same classes therefore run in the engine process, in tests under virtual time
and in simulations. `engine` drives them and owns the tensors.

    scheduler               submit, plan, apply, abort: the way in
    ├── step_planner            which tokens the next step computes
    │   ├── admission               may the next request start now
    │   ├── prefill_allowance       how much prefill fits
    │   ├── step_cost               how long steps take, learned
    │   └── preemption              who gives way when memory runs out
    ├── roster                  who waits, who runs
    │   └── waiting_queue           who is next
    ├── deadlines               whose answer would come too late
    └── kv_manager              KV memory over all groups
        ├── kv_group                one group: which blocks, until when, resumable where
        │   ├── block_pool              reference counts, order of reuse, key → block
        │   └── block_tables            row of a sequence → its blocks, as the runner reads them
        ├── prefix_keys             what makes two prefixes equal
        └── prefix_pending          prefixes that a running sequence is about to compute

    config, sequence, step_plan, status_counters: the data they speak in
"""
