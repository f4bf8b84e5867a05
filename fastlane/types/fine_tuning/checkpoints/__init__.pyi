from openai.types.fine_tuning.checkpoints import *
