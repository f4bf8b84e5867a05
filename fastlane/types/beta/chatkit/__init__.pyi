from openai.types.beta.chatkit import *
