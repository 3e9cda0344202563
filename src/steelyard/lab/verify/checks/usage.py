"""Checks of the usage: every count against another way of counting."""

from itertools import pairwise

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, HELLO, SCRIPTS, STORIES, fresh_words
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_TEXT = Endpoint.TEXT


@check_both(
    "usage.tokenizer",
    "prompt_tokens is what the server's own tokenizer counts.",
    "Are special tokens or the chat template counted differently in the two places?",
)
async def _tokenizer(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (HELLO, COUNTING, SCRIPTS[0]):
        if endpoint is Endpoint.CHAT:
            ids = await probe.tokenizer.encode_chat([{"role": "user", "content": subject}])
        else:
            ids = await probe.tokenizer.encode(subject)
        answer = await probe.ask(endpoint, subject, max_tokens=1)
        count = answer.counts.prompt_tokens
        problem = f"{subject[:20]!r} counts {count} tokens, its tokenizer says {len(ids)}"
        probe.claim(count == len(ids), problem, answer)


@check(
    "usage.token-ids",
    "prompt_tokens of a prompt of n token ids is n.",
    "Are tokens added or dropped between door and engine?",
)
async def _token_ids(probe: Probe) -> None:
    for count in (1, 7, 40):
        ids = list(range(100, 100 + count))
        answer = await probe.ask(_TEXT, ids, max_tokens=1)
        counted = answer.counts.prompt_tokens
        probe.claim(counted == count, f"{count} ids count as {counted} prompt tokens", answer)


@check_both(
    "usage.completion",
    "completion_tokens is the number of tokens delivered.",
    "Are tokens counted that were held back, or chunks instead of tokens?",
)
async def _completion(probe: Probe, endpoint: Endpoint) -> None:
    wishes = probe.logprobs(endpoint)
    if not wishes:
        probe.skip("without log-probabilities the tokens cannot be counted")
    for subject in (COUNTING, STORIES[1], SCRIPTS[0]):
        for answer in (
            await probe.ask(endpoint, subject, max_tokens=20, **wishes),
            await probe.stream(
                endpoint,
                subject,
                max_tokens=20,
                stream_options={"include_usage": True},
                **wishes,
            ),
        ):
            _claim_counted(probe, answer)


@check_both(
    "usage.sums",
    "total_tokens is the sum of the other two, and none is negative.",
    "Compare the usage with OpenAI's reference.",
)
async def _sums(probe: Probe, endpoint: Endpoint) -> None:
    whole = await probe.ask(endpoint, COUNTING)
    streamed = await probe.stream(endpoint, COUNTING, stream_options={"include_usage": True})
    for answer in (whole, streamed):
        counts = answer.counts
        total = counts.prompt_tokens + counts.completion_tokens
        is_sum = counts.total_tokens == total
        probe.claim(is_sum, f"total_tokens is {counts.total_tokens}, the sum {total}", answer)
        is_positive = counts.prompt_tokens > 0 and counts.completion_tokens > 0
        probe.claim(is_positive, "a count is zero or less", answer)


@check_both(
    "usage.streamed",
    "A streamed answer has the usage of the whole one.",
    "Is the stream's usage counted in another place?",
)
async def _streamed(probe: Probe, endpoint: Endpoint) -> None:
    whole = await probe.ask(endpoint, COUNTING, max_tokens=12)
    wishes = {"max_tokens": 12, "stream_options": {"include_usage": True}}
    streamed = await probe.stream(endpoint, COUNTING, **wishes)
    left = whole.counts.prompt_tokens, whole.counts.completion_tokens
    right = streamed.counts.prompt_tokens, streamed.counts.completion_tokens
    if whole.text != streamed.text:
        left, right = left[:1], right[:1]  # type: ignore[assignment]  # texts of other lengths
    probe.claim(left == right, f"usage is {left} whole and {right} streamed", whole, streamed)


@check_both(
    "usage.choices",
    "With n choices, completion_tokens counts all of them.",
    "n choices are n outputs to pay for.",
)
async def _choices(probe: Probe, endpoint: Endpoint) -> None:
    answer = await probe.ask(endpoint, STORIES[0], n=2, temperature=1.0, max_tokens=6)
    if not all(choice.finish_reason == "length" for choice in answer.choices):
        probe.skip("a choice ended by itself")
    count = answer.counts.completion_tokens
    probe.claim(count == 12, f"two choices of 6 tokens count as {count}", answer)


@check_both(
    "usage.grows",
    "prompt_tokens grows with the prompt, by the same amount for the same words.",
    "Is the prompt cut silently?",
)
async def _grows(probe: Probe, endpoint: Endpoint) -> None:
    counts = []
    for words in (10, 60, 110, 410):
        answer = await probe.ask(endpoint, "word" + " word" * (words - 1), max_tokens=1)
        counts.append(answer.counts.prompt_tokens)
    first, second, last = (b - a for a, b in pairwise(counts))
    problem = f"prompts of 10, 60, 110 and 410 words have {counts} tokens"
    probe.claim(first >= 50 and first == second and last == 6 * first, problem, answer)


@check_both(
    "usage.cached",
    "cached_tokens says how much of a repeated prompt was found, and nothing for a new one.",
    "Is the cache keyed by all that matters? Is the count taken before the lookup?",
)
async def _cached(probe: Probe, endpoint: Endpoint) -> None:
    subject = fresh_words(160)
    answers = [await probe.ask(endpoint, subject, max_tokens=1) for _ in range(3)]
    cached = [_cached_tokens(answer) for answer in answers]
    if None in cached:
        probe.skip("cached_tokens is not reported")
    prompt = answers[0].counts.prompt_tokens
    known = [count for count in cached if count is not None]
    in_range = all(0 <= count <= prompt for count in known)
    probe.claim(in_range, f"cached_tokens is {known} of {prompt} prompt tokens", *answers)
    is_new = known[0] <= prompt // 3
    probe.claim(is_new, f"{known[0]} of {prompt} tokens of a new prompt were cached", answers[0])
    if not any(known[1:]):
        probe.skip(f"nothing of {prompt} tokens was cached; is prefix caching off?")
    is_steady = known[1] == known[2] or known[1] < known[2]
    probe.claim(is_steady, f"cached_tokens falls from {known[1]} to {known[2]}", *answers)
    probe.note(f"{known[-1]} of {prompt} tokens cached")


def _claim_counted(probe: Probe, answer: Answer) -> None:
    delivered = len(answer.choice.tokens or ())
    counted = answer.counts.completion_tokens
    # The end token may be counted without being shown, or shown and counted.
    most = delivered + (answer.finish_reason == "stop")
    is_right = delivered <= counted <= most
    problem = f"{counted} completion tokens are counted, {delivered} have log-probabilities"
    probe.claim(is_right, problem, answer)


def _cached_tokens(answer: Answer) -> int | None:
    details = answer.counts.prompt_tokens_details
    return None if details is None else details.cached_tokens


CHECKS = (
    *_tokenizer,
    _token_ids,
    *_completion,
    *_sums,
    *_streamed,
    *_choices,
    *_grows,
    *_cached,
)
