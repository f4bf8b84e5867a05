from openai.types.fine_tuning.jobs import *
