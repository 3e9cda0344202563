"""Between text and tokens, without torch: tokenizer, chat template, detokenising, stop strings."""

from steelyard.text.chat_template import ChatTemplate, TemplateLimits
from steelyard.text.detokenizer import Detokenizer
from steelyard.text.stop_strings import StopMatcher
from steelyard.text.text_model import TextModel, open_text_model
from steelyard.text.tokenizer import Tokenizer, open_tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "StopMatcher",
    "TemplateLimits",
    "TextModel",
    "Tokenizer",
    "open_text_model",
    "open_tokenizer",
]
