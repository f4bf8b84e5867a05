from openai.lib.streaming.responses import *
