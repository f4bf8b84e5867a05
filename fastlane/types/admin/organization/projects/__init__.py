"""`openai.types.admin.organization.projects`, for type checkers."""

from openai.types.admin.organization.projects import *
