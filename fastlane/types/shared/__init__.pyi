from openai.types.shared import *
