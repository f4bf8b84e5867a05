"""`openai.types.admin.organization.groups`, for type checkers."""

from openai.types.admin.organization.groups import *
