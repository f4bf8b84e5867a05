"""Celery: one client for all tasks of a process. Background tasks yield to interactive calls.

celery --app examples.celery_tasks worker --concurrency 4
python -c "from examples.celery_tasks import summarise; print(summarise.delay('…').get())"
"""

import os

import openai
from celery import Celery

import fastlane

app = Celery("tasks", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
client = fastlane.OpenAI(plays=[fastlane.RateLimits(), fastlane.Urgency()])


@app.task(autoretry_for=(openai.APIConnectionError, openai.InternalServerError), retry_backoff=True)
def summarise(text: str) -> str:
    """Return a summary in one sentence."""
    with fastlane.urgency("background"):
        answer = client.chat.completions.create(
            model="gpt-4.1-nano",
            messages=[{"role": "system", "content": "Summarise in one sentence."}, {"role": "user", "content": text}],
            max_tokens=100,
        )
    return answer.choices[0].message.content or ""
