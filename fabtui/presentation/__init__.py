"""Shared by both front ends: wording, numbers, cell levels, legends; no Textual, no rich."""
