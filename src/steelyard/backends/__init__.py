"""Floor 5: `contract.Engine` in front of each kind of engine; the door never sees another side.

`embedded` speaks to an engine process of ours, `remote` to endpoints with the OpenAI API over
`http`, `fake` makes tokens up for tests and drills.
Starting and stopping processes is `fleet`'s work.
"""
