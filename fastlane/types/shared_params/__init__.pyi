from openai.types.shared_params import *
