"""A first call: its answer as it streams, then where its time went."""

from fastlane import OpenAI, record_of

with OpenAI() as client:
    stream = client.chat.completions.create(
        model="gpt-4.1-nano",
        messages=[{"role": "user", "content": "Name three rivers."}],
        max_tokens=60,
        stream=True,
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
    print()

    record = record_of(stream)
    if record:
        print(record.time_to_first_token_s, "s to the first token,", record.api_end_to_end_s, "s in all")
