from openai.types.realtime.translations import *
