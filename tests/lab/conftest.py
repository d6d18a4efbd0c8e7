"""Shared fixtures of labs."""

from tests.light_torch import light_torch as light_torch
