"""`openai.lib.azure`, for type checkers."""

from openai.lib.azure import *
