from openai.types.admin.organization import *
