"""Twenty prompts of different kinds and lengths."""

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "In 1969, the first humans",
    "Explain in one paragraph why the sky is blue.",
    "A steelyard is a balance with unequal arms that",
    "Translate to German: Good morning, how are you?",
    "SELECT name, COUNT(*) FROM orders",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is 17 + 25?\nA:",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "import asyncio\n\nasync def main() -> None:\n",
    "Dear Sir or Madam,\n\nI am writing to",
    "Water boils at 100 degrees Celsius because",
    "Ünïcödé, 日本語 and emoji 🎈 in one line:",
    "<html>\n<head><title>",
    "To be, or not to be, that is the question:",
    "List three prime numbers greater than fifty.",
    "The three laws of thermodynamics state that",
    "a",
)
