"""How text is cut before byte-pair encoding, by the names that llama.cpp gives the ways.

A GGUF file names its pre-tokenizer but does not contain it. The rules are those of the models'
own `tokenizer.json`; a name that is not here is refused, because a nearly right rule gives nearly
right tokens. Building the tokenizer from a rule is `gguf_tokenizer`'s work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way of cutting. The steps follow in the order of the fields."""

    normalizes_nfc: bool = False
    patterns: tuple[str, ...] = ()
    """Regular expressions applied one after the other; matches and gaps become pieces."""
    splits_digits: bool = False
    """Every numeric character becomes a piece of its own."""
    uses_gpt2_pattern: bool = False
    """GPT-2's own expression, built into the byte-level step."""
    ignores_merges: bool = False
    """A piece that is a token as it stands is taken whole."""
    adds_bos: bool = False
    """What holds when the file does not say."""


def _character_class(ranges: str) -> str:
    """`[...]` from hexadecimal code points and ranges of them."""
    parts = [part.split("-") for part in ranges.split()]
    return "[" + "".join("-".join(chr(int(end, 16)) for end in part) for part in parts) + "]"


def _cl100k(digits: str) -> str:
    """The expression that OpenAI's cl100k introduced; models differ in how many digits it takes."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_DEEPSEEK_LLM_LETTERS = _character_class(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 "
    "1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB "
    "1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D "
    "212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A "
    "FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DEEPSEEK_LLM_MARKS = _character_class("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_DEEPSEEK_LLM_HAN = _character_class("4E00-9FA5 800-4E00 AC00-D7FF")
_DEEPSEEK_V3_HAN = _character_class("4E00-9FA5 3040-309F 30A0-30FF")
_DEEPSEEK_V3_REST = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_GPT2 = PreTokenizer(uses_gpt2_pattern=True)
_LLAMA3 = PreTokenizer(patterns=(_cl100k(r"\p{N}{1,3}"),), ignores_merges=True, adds_bos=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "default": _GPT2,
        "gpt-2": _GPT2,
        "smollm": PreTokenizer(splits_digits=True, uses_gpt2_pattern=True),
        "llama-bpe": _LLAMA3,
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "qwen2": PreTokenizer(normalizes_nfc=True, patterns=(_cl100k(r"\p{N}"),)),
        "deepseek-llm": PreTokenizer(
            patterns=(
                r"[\r\n]",
                rf"\s?{_DEEPSEEK_LLM_LETTERS}+",
                rf"\s?{_DEEPSEEK_LLM_MARKS}+",
                r"\s+$",
                rf"{_DEEPSEEK_LLM_HAN}+",
            ),
            splits_digits=True,
        ),
        "deepseek-v3": PreTokenizer(
            patterns=(r"\p{N}{1,3}", rf"{_DEEPSEEK_V3_HAN}+", _DEEPSEEK_V3_REST)
        ),
    }
)
