"""What clients may say and what they are told, in OpenAI's words plus vLLM's extras.

`chat`, `completions` and `tokens` hold the request schemas, `fields` the treatment of names that
are not in them, `json_body` the strict decoding, `sampling` the way to `SamplingParams`. Values
only: no sockets, no engine.
"""
