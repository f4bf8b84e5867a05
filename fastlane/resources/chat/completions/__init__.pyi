from openai.resources.chat.completions import *
