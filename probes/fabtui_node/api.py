"""Public interface for user probes: commands within a deadline, and files of the kernel.

User probes should import from here; everything else in ``fabtui_node`` may change between releases.
"""

from __future__ import annotations

from fabtui_node.system.run_command import CommandResult
from fabtui_node.system.run_command import find as find_command
from fabtui_node.system.run_command import run as run_command
from fabtui_node.system.sysfs import integer as read_integer
from fabtui_node.system.sysfs import names as list_folder
from fabtui_node.system.sysfs import real as resolve_link
from fabtui_node.system.sysfs import text as read_text

__all__ = ["CommandResult", "find_command", "list_folder", "read_integer", "read_text", "resolve_link", "run_command"]
