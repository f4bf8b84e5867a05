from openai.types.images_response import *
