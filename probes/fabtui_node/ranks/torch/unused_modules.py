"""Modules of PyTorch that CPU ranks do not use: without them it loads in a third of the time."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import types
import warnings
from importlib import abc, machinery
from typing import Any, Iterator, Optional, Tuple

VERSIONS = ("2.13.0",)
"""Versions of PyTorch that were tried without these modules."""

UNUSED = (
    *("_dynamo", "_functorch", "_guards", "_higher_order_ops", "_inductor", "_logging", "_meta_registrations"),
    *("_native", "_ops", "_strobelight", "_subclasses", "_tensor_docs", "_vmap_internals", "amp", "ao", "backends"),
    *("compiler", "cuda._memory_viz", "cuda.amp", "cuda.memory", "cuda.tunable", "distributed._meta_registrations"),
    *("distributed.autograd", "distributed.config", "distributed.device_mesh", "distributions", "export", "func"),
    *("fx", "hub", "jit", "masked", "mtia", "nested", "nn", "optim", "overrides", "package", "profiler"),
    *("quantization", "serialization", "sparse", "testing", "utils._debug_mode", "utils._python_dispatch"),
    *("utils._pytree", "utils.data", "xpu"),
)
"""Modules below torch about networks, their compiler, other devices, and what only documents or measures."""

_PREFIXES: Tuple[str, ...] = tuple("torch.%s." % name for name in UNUSED)


class _Meta(type):
    """Class of a class that works as a base, a decorator, a context and a value: an importing module may use any."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __call__(cls, *args: Any, **named: Any) -> Any:
        decorates = len(args) == 1 and isinstance(args[0], (types.FunctionType, type))
        return args[0] if decorates and not isinstance(args[0], _Meta) else cls

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __or__(cls, _: Any) -> Any:
        return cls

    def __ror__(cls, _: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __contains__(cls, _: Any) -> bool:
        return False

    def __enter__(cls) -> Any:
        return cls

    def __exit__(cls, *_: Any) -> None:
        """Let errors pass."""


class Anything(metaclass=_Meta):
    """Every name of a module that is left out."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Accept any base class."""


class _Module(types.ModuleType):
    __path__ = ()  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(Anything, name)


class _Finder(abc.MetaPathFinder, abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[machinery.ModuleSpec]:
        return machinery.ModuleSpec(name, self, is_package=True) if (name + ".").startswith(_PREFIXES) else None

    def create_module(self, spec: machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave the module empty."""


def leave_out() -> bool:
    """Leave the unused modules out of the PyTorch that is imported next; return False if it is not a known version."""
    if "torch" in sys.modules or _version() not in VERSIONS:
        return False
    sys.meta_path.insert(0, _Finder())
    # PyTorch imports both where they are installed, one to count GPUs; it warns once where it has no NumPy.
    for name in ("numpy", "pynvml"):
        sys.modules[name] = None  # type: ignore[assignment]
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    # It would look through all installed packages for further devices.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    return True


def _version() -> Optional[str]:
    """Return the version of the installed PyTorch, without the name of its build."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            found = re.search(r"^__version__\s*(?::[^=\n]+)?=\s*['\"]([0-9.]+)", file.read(20000), re.MULTILINE)
        return found.group(1) if found else None
    return None
