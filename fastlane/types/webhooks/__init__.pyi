from openai.types.webhooks import *
