"""Formats of outputs of commands that run on nodes, by name.

A module with a format holds ``FORMATS``, a list of `fabtui_node.parsers.base.Format`; it is found by its folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Dict

from fabtui_node.parsers.base import Format


def formats_in(package: str) -> Dict[str, Format]:
    """Return the formats that the modules of a package and of the packages in it declare, by name.

    Raises:
        ValueError: Two formats have the same name.
    """
    folder: Any = importlib.import_module(package)
    names = sorted(module.name for module in pkgutil.walk_packages(folder.__path__, package + "."))
    declared = [form for name in names for form in getattr(importlib.import_module(name), "FORMATS", ())]
    found = {form.name: form for form in declared}
    if len(found) < len(declared):
        raise ValueError("two formats have the same name")
    return found


def formats() -> Dict[str, Format]:
    return formats_in("fabtui_node.parsers")
