from openai.lib.streaming.chat import *
