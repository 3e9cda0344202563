"""Checks of text completions: shape, token ids, several prompts, echo, choices."""

from steelyard.lab.verify.check import check
from steelyard.lab.verify.checks.shapes import claim_shape
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, SCRIPTS, STORIES
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_TEXT = Endpoint.TEXT


@check(
    "completions.shape",
    "A text completion has OpenAI's members.",
    "Compare the answer with OpenAI's reference of the completion object.",
)
async def _shape(probe: Probe) -> None:
    answer = await probe.ask(_TEXT, COUNTING)
    claim_shape(probe, answer)
    probe.claim(bool(answer.text), "the text is empty", answer)


@check(
    "completions.token-ids",
    "A prompt of token ids is answered as the text they stand for.",
    "Are special tokens added to token ids too? Are the ids decoded and encoded again?",
)
async def _token_ids(probe: Probe) -> None:
    ids = await probe.tokenizer.encode(COUNTING)
    by_text = await probe.ask(_TEXT, COUNTING, **probe.logprobs(_TEXT))
    by_ids = await probe.ask(_TEXT, ids, **probe.logprobs(_TEXT))
    counts = by_text.counts.prompt_tokens, by_ids.counts.prompt_tokens
    probe.claim(counts[0] == counts[1], f"prompts have {counts} tokens", by_text, by_ids)
    probe.agree(by_text, by_ids, "the answers to text and to ids")


@check(
    "completions.several-prompts",
    "Several prompts in one request are answered each, in order.",
    "choices[i] belongs to prompt i.",
)
async def _several_prompts(probe: Probe) -> None:
    prompts = [COUNTING, SCRIPTS[1], "a b c d e f g a b c d e f g a b c"]
    logprobs = probe.logprobs(_TEXT)
    together = await probe.ask(_TEXT, prompts, **logprobs)
    indices = [choice.index for choice in together.choices]
    if not probe.claim(indices == [0, 1, 2], f"choices are {indices}, not [0, 1, 2]", together):
        return
    sums = [0, 0]
    for prompt, choice in zip(prompts, together.choices, strict=True):
        alone = await probe.ask(_TEXT, prompt, **logprobs)
        what = f"answers to {prompt[:12]!r}, alone and with others,"
        probe.choices_agree(alone.choice, choice, what, alone, together)
        sums[0] += alone.counts.prompt_tokens
        sums[1] += alone.counts.completion_tokens
    counts = [together.counts.prompt_tokens, together.counts.completion_tokens]
    probe.claim(counts == sums, f"usage is {counts}, the sum of its parts {sums}", together)


@check(
    "completions.echo",
    "echo puts the prompt, unchanged, before the text.",
    "OpenAI's echo; a server without it should refuse it, not ignore it.",
)
async def _echo(probe: Probe) -> None:
    for prompt in (STORIES[0], SCRIPTS[1], SCRIPTS[0]):
        plain = await probe.ask(_TEXT, prompt, max_tokens=4)
        echoed = await probe.ask(_TEXT, prompt, max_tokens=4, echo=True)
        begins = echoed.text.lstrip().startswith(prompt)
        probe.claim(begins, f"{prompt[:20]!r} was not put before the text", echoed)
        if begins:
            is_equal = echoed.text.lstrip() == (prompt + plain.text).lstrip()
            probe.claim(is_equal, "the text after the echo is another one", plain, echoed)


CHECKS = (_shape, _token_ids, _several_prompts, _echo)
