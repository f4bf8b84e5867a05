from openai.lib import *
