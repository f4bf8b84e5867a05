from openai.types.beta.agents.automations import *
