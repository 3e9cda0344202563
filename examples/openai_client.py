"""Talk to a running Steelyard with the official OpenAI client: whole, then as a stream."""

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="unused")
question = "What is the capital of France? Answer in one sentence."

answer = client.chat.completions.create(
    model="smollm2-135m",
    messages=[{"role": "user", "content": question}],
    temperature=0,
)
print(answer.choices[0].message.content)

for event in client.chat.completions.create(
    model="smollm2-135m",
    messages=[{"role": "user", "content": question}],
    temperature=0,
    stream=True,
):
    print(event.choices[0].delta.content or "", end="", flush=True)
print()
