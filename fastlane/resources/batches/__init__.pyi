from openai.resources.batches import *
