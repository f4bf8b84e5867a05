from openai.types.fine_tuning import *
