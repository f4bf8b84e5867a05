"""`openai.lib`, for type checkers."""

from openai.lib import *
