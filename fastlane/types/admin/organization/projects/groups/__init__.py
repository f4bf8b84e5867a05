"""`openai.types.admin.organization.projects.groups`, for type checkers."""

from openai.types.admin.organization.projects.groups import *
