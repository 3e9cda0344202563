"""`contract.Engine` over HTTP, for engines that are programs of others.

`engine` is the whole: connections, streams, deadlines, aborts, health. What a kind of server wants
to be told and how it answers is its `dialect` (`backends.remote`, `backends.vllm`,
`backends.sglang`). Starting and stopping processes is `fleet`'s work.
"""
