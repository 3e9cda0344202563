"""Send a file of requests with the official OpenAI client, and wait for all the answers."""

import json
import time

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="unused")
requests = [
    {
        "custom_id": f"question-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": f"What is {number} + 1?"}],
        },
    }
    for number in range(3)
]
content = "\n".join(json.dumps(request) for request in requests)

file = client.files.create(file=("requests.jsonl", content.encode()), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
)
while batch.status in ("validating", "in_progress"):
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)
for line in client.files.content(batch.output_file_id).text.splitlines():
    answer = json.loads(line)
    print(answer["custom_id"], answer["response"]["body"]["choices"][0]["message"]["content"])
