from __future__ import annotations

from pathlib import Path

import pytest

from .places import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return an empty folder to be made to look like sysfs."""
    return Tree(tmp_path)
