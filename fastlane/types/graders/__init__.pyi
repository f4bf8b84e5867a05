from openai.types.graders import *
