from openai.types.fine_tuning.alpha import *
