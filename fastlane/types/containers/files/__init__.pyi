from openai.types.containers.files import *
