"""`openai.types.admin.organization.projects.users`, for type checkers."""

from openai.types.admin.organization.projects.users import *
