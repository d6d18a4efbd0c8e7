"""torch for the rank hosts of tests, without what only its compiler needs: it loads in half of the time."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Modules below torch that nothing of the node side uses.
UNUSED = ("_meta_registrations", "distributed._meta_registrations", "export", "_native")
# Found before torch, it puts itself out of the way.
SOURCE = """\
import importlib, sys, types
for name in {unused!r}:
    sys.modules["torch." + name] = types.ModuleType("torch." + name)
sys.path.remove({folder!r})
del sys.modules["torch"]
importlib.import_module("torch")
"""


@pytest.fixture(scope="session", autouse=True)
def light_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have all processes that tests start load such a torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        yield
        return
    folder = tmp_path_factory.mktemp("light")
    (folder / "torch").mkdir()
    # The node side reads the version there.
    shutil.copy(Path(found.origin).with_name("version.py"), folder / "torch")
    (folder / "torch" / "__init__.py").write_text(SOURCE.format(unused=UNUSED, folder=str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield
