"""Bootloader, supervisor, keeper, worker and their processes."""
