"""torch for the rank hosts of tests, without what gloo does not use: it loads in less than half of the time."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Modules below torch that nothing of the node side uses: networks and their compiler.
UNUSED = (
    *("_dynamo", "_functorch", "_higher_order_ops", "_inductor", "_meta_registrations", "_native", "_subclasses", "ao"),
    *("compiler", "distributed._meta_registrations", "export", "func", "fx", "jit", "masked", "nested", "nn", "optim"),
    *("quantization", "sparse", "utils._debug_mode", "utils.data"),
)
# Found before torch, it puts itself out of the way, and gives unused modules that have any name. Each name works as a
# class, a decorator, a context and a value, because the importing module may use it as any of them.
SOURCE = """\
import importlib, importlib.abc, importlib.machinery, sys, types

class Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything
    def __call__(cls, *args, **named):
        decorates = len(args) == 1 and isinstance(args[0], (types.FunctionType, type))
        return args[0] if decorates and not isinstance(args[0], Meta) else cls
    def __getitem__(cls, _): return cls
    def __or__(cls, _): return cls
    def __ror__(cls, _): return cls
    def __iter__(cls): return iter(())
    def __contains__(cls, _): return False
    def __enter__(cls): return cls
    def __exit__(cls, *_): return False

class Anything(metaclass=Meta):
    def __init_subclass__(cls, **_): pass

class Module(types.ModuleType):
    __path__ = ()
    def __getattr__(self, name):
        return getattr(Anything, name)

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        unused = (name + ".").startswith({unused!r})
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if unused else None
    def create_module(self, spec): return Module(spec.name)
    def exec_module(self, module): pass

sys.meta_path.insert(0, Finder())
sys.modules["pynvml"] = None
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
    unused = tuple(f"torch.{name}." for name in UNUSED)
    (folder / "torch" / "__init__.py").write_text(SOURCE.format(unused=unused, folder=str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield
