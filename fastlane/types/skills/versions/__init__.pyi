from openai.types.skills.versions import *
