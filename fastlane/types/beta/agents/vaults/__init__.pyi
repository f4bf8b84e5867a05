from openai.types.beta.agents.vaults import *
