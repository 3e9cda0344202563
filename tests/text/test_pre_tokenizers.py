"""How text is cut before BPE, by the name of the rule.

The splits were compared with those of the models' own tokenizer.json where one was at hand
(deepseek-v3: identical on 20,000 random texts); the examples here keep them so.
"""

import pytest
from tokenizers import normalizers

from steelyard.text.gguf_tokenizer import _pre_tokenizer
from steelyard.text.pre_tokenizers import PRE_TOKENIZERS
from tests.checkpoints.builders import byte_alphabet


def _split(name: str, text: str) -> list[str]:
    back = {letter: byte for byte, letter in byte_alphabet().items()}
    pieces = _pre_tokenizer(PRE_TOKENIZERS[name]).pre_tokenize_str(text)
    return [bytes([back[letter] for letter in piece]).decode() for piece, _ in pieces]


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-2", "I'm 1234  ok!\n\nHi", ["I", "'m", " 1234", " ", " ok", "!", "\n", "\n", "Hi"]),
        ("default", "x² CAN'T", ["x", "²", " CAN", "'", "T"]),
        ("smollm", "in 2024\n\n3", ["in", " ", "2", "0", "2", "4", "\n\n", "3"]),
        ("smollm", "I'm ok  x", ["I", "'m", " ok", " ", " x"]),
        ("llama-bpe", "CAN'T 12345\n\n ok", ["CAN", "'T", " ", "123", "45", "\n\n", " ok"]),
        ("llama-bpe", "a.b(c)", ["a", ".b", "(c", ")"]),
        ("qwen2", "CAN'T 123\n ok", ["CAN", "'T", " ", "1", "2", "3", "\n", " ok"]),
        ("deepseek-v3", "12345 你好world x++", ["123", "45", " ", "你好", "world", " x", "++"]),
        ("deepseek-v3", "f(x)\n\nかな", ["f", "(x", ")\n\n", "かな"]),
        (
            "deepseek-llm",
            "ab 12\nПривет, 你好!",
            ["ab", " ", "1", "2", "\n", "Привет", ",", " ", "你好", "!"],
        ),
    ],
)
def test_examples(name: str, text: str, pieces: list[str]) -> None:
    assert _split(name, text) == pieces


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@pytest.mark.parametrize("text", ["", " ", "a\r\n\tb", "😀👍🏽 é", "1½²", "\x00\u200b\ufeff"])
def test_nothing_is_lost(name: str, text: str) -> None:
    assert "".join(_split(name, text)) == text


def test_only_qwen_normalises_its_text() -> None:
    assert [name for name, rule in PRE_TOKENIZERS.items() if rule.normalizes_nfc] == ["qwen2"]
    assert normalizers.NFC().normalize_str("e\u0301") == "é"
