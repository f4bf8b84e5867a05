from openai.resources.responses import *
