"""Builds a `tokenizers` tokenizer from the vocabulary of a GGUF file.

Byte-level BPE (`gpt2` in GGUF's words) with a known pre-tokenizer only; anything else is refused
by its name. The vocabulary is read by `checkpoints`, and used through `tokenizer.Tokenizer`.
"""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from steelyard.checkpoints import GGUFVocabulary
from steelyard.contract.errors import CheckpointError
from steelyard.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

__all__ = ["build_from_gguf"]


def build_from_gguf(vocabulary: GGUFVocabulary) -> tokenizers.Tokenizer:
    """The tokenizer that the model was trained with.

    Raises `CheckpointError` for an unknown kind or pre-tokenizer and for an unsound vocabulary.
    """
    path = vocabulary.file.path
    rule = _rule_of(vocabulary)
    tokens = vocabulary.tokens()
    backend = tokenizers.Tokenizer(_bpe(vocabulary, tokens, rule))
    if rule.normalizes_nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(rule)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = _post_processor(vocabulary, tokens, rule)
    for ids, is_special in (
        (vocabulary.control_ids(), True),
        (vocabulary.user_defined_ids(), False),
    ):
        if ids and ids[-1] >= len(tokens):
            raise _unsound(path, f"it has more kinds of tokens than its {len(tokens)} tokens")
        backend.add_tokens(
            [
                tokenizers.AddedToken(tokens[token_id], normalized=False, special=is_special)
                for token_id in ids
            ]
        )
    return backend


def _rule_of(vocabulary: GGUFVocabulary) -> PreTokenizer:
    if vocabulary.model != "gpt2":
        raise CheckpointError(
            f"the tokenizer kind {vocabulary.model!r} cannot be rebuilt from a GGUF file",
            param=str(vocabulary.file.path),
            fix="use the safetensors of this model, with its tokenizer.json",
        )
    rule = PRE_TOKENIZERS.get(vocabulary.pre_tokenizer)
    if rule is None:
        raise CheckpointError(
            f"the pre-tokenizer {vocabulary.pre_tokenizer!r} is not known",
            param=str(vocabulary.file.path),
            fix=f"known are {', '.join(PRE_TOKENIZERS)}; or use the safetensors of this model",
        )
    return rule


def _bpe(vocabulary: GGUFVocabulary, tokens: list[str], rule: PreTokenizer) -> models.BPE:
    path = vocabulary.file.path
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise _unsound(path, f"{len(tokens) - len(ids)} of its tokens appear twice")
    merges = vocabulary.merges()
    for left, right in merges:
        if left not in ids or right not in ids or left + right not in ids:
            raise _unsound(path, f"the merge of {left!r} and {right!r} is not in the vocabulary")
    return models.BPE(vocab=ids, merges=merges, ignore_merges=rule.ignores_merges)


def _pre_tokenizer(rule: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        for pattern in rule.patterns
    ]
    if rule.splits_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.uses_gpt2_pattern))
    return pre_tokenizers.Sequence(steps)


def _post_processor(
    vocabulary: GGUFVocabulary, tokens: list[str], rule: PreTokenizer
) -> processors.PostProcessor:
    """Adds BOS and EOS where the file says so (or, for BOS, where the rule does)."""
    adds_bos = rule.adds_bos if vocabulary.adds_bos is None else vocabulary.adds_bos
    before = _special_tokens(vocabulary, tokens, "bos") if adds_bos else []
    after = _special_tokens(vocabulary, tokens, "eos") if vocabulary.adds_eos else []
    return processors.TemplateProcessing(
        single=[*(token for token, _ in before), "$A", *(token for token, _ in after)],
        special_tokens=sorted({*before, *after}),
    )


def _special_tokens(
    vocabulary: GGUFVocabulary, tokens: list[str], key: str
) -> list[tuple[str, int]]:
    token_id = vocabulary.file.integer(f"tokenizer.ggml.{key}_token_id")
    if token_id is None or not 0 <= token_id < len(tokens):
        raise _unsound(vocabulary.file.path, f"it wants a {key.upper()} token and has none")
    return [(tokens[token_id], token_id)]


def _unsound(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"the vocabulary is damaged: {what}", param=str(path), fix="fetch the model again"
    )
