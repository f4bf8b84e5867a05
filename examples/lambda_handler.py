"""AWS Lambda: the client is made outside of the handler, so that an instance keeps it between invocations.

A connection that the provider has closed while the instance was frozen is noticed, and replaced, before it is used.
"""

from typing import Any

from fastlane import OpenAI

client = OpenAI(timeout=20, max_retries=1)  # less than the function's own time limit


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    answer = client.chat.completions.create(
        model="gpt-4.1-nano", messages=[{"role": "user", "content": event["question"]}], max_tokens=200
    )
    return {"statusCode": 200, "body": answer.choices[0].message.content}
