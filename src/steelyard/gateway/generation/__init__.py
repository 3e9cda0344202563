"""The path of an inference request behind the door: parameters, tokens, engine, text, answer.

`endpoint` is the path itself, one step per line. `prompts` and `order` turn what was asked into
engine requests; `choice` turns tokens back into text; `streaming` and `collecting` deliver it in
the words of a `dialect`.
"""
