"""`openai.types.admin.organization.users`, for type checkers."""

from openai.types.admin.organization.users import *
