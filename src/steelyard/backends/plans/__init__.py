"""What servers of other makes are told so that a model fits its hardware, and what cannot fit.

`plan` holds the question, `devices` and `deepseek_v4` hold facts, `fitness` refuses. Flags are each
server's own: `backends.vllm.flags`, `backends.sglang.flags`.
"""
