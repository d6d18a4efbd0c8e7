import importlib.util
import json
import linecache
import subprocess
import sys
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.runtime.bootloader import BOOT, MemoryImporter, pack

SOURCES = {
    "memory_pack": "WHAT = 'package'\n",
    "memory_pack.low.leaf": "from memory_pack import WHAT\n\n\ndef fail():\n    raise ValueError(WHAT)\n",
    "memory_plain": "VALUE = 7\n",
    "memory_broken": "def (:\n",
}


@pytest.fixture
def importer() -> Iterator[MemoryImporter]:
    found = MemoryImporter(SOURCES)
    sys.meta_path.insert(0, found)
    yield found
    sys.meta_path.remove(found)
    for name in [name for name in sys.modules if name.startswith("memory_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("importer")
def test_imports_modules_and_packages_from_memory() -> None:
    import memory_pack.low.leaf as leaf
    import memory_plain

    assert memory_plain.VALUE == 7
    assert leaf.WHAT == "package"
    # "memory_pack.low" has no source of its own, it is there through its member.
    assert sys.modules["memory_pack.low"].__path__ == []
    assert leaf.__package__ == "memory_pack.low"


@pytest.mark.usefixtures("importer")
def test_tracebacks_show_source_lines() -> None:
    import memory_pack.low.leaf as leaf

    linecache.clearcache()
    with pytest.raises(ValueError, match="package") as caught:
        leaf.fail()
    text = "".join(traceback.format_exception(caught.value))
    assert "raise ValueError(WHAT)" in text
    assert "payload:memory_pack/low/leaf.py" in text


@pytest.mark.usefixtures("importer")
def test_unknown_and_broken_modules_are_ordinary_errors() -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("memory_pack.absent")
    with pytest.raises(SyntaxError):
        __import__("memory_broken")


@pytest.mark.usefixtures("importer")
def test_no_module_comes_from_another_release_on_the_disk(tmp_path: Path) -> None:
    class Editable:
        """Finds modules of packages by their whole names, as editable installs do."""

        def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
            return importlib.util.spec_from_file_location(fullname, tmp_path / "other.py")

    (tmp_path / "other.py").write_text("")
    found: Any = Editable()
    sys.meta_path.append(found)
    try:
        __import__("memory_elsewhere")
        with pytest.raises(ModuleNotFoundError, match="in the payload"):
            __import__("memory_pack.absent")
    finally:
        sys.meta_path.remove(found)


def test_pack_is_a_length_and_compressed_json() -> None:
    data = pack({"a": "x = 'ü'"}, {"k": [1]}, "a", child=True)
    assert int(data[:8], 16) == len(data) - 8
    assert json.loads(zlib.decompress(data[8:])) == {
        "modules": {"a": "x = 'ü'"},
        "config": {"k": [1]},
        "entry": "a",
        "child": True,
    }


def boot(
    entry: str, cwd: Path, flags: list[str], tail: bytes = b"", **more: object
) -> subprocess.CompletedProcess[bytes]:
    import fabtui_node.runtime.bootloader

    sources = {
        "fabtui_node.runtime.bootloader": Path(fabtui_node.runtime.bootloader.__file__).read_text(),
        "entry": entry,
    }
    data = pack(sources, {"word": "hello"}, "entry", **more) + tail
    return subprocess.run(
        [sys.executable, *flags, "-c", BOOT], input=data, capture_output=True, timeout=20, cwd=cwd, check=False
    )


@pytest.mark.parametrize("flags", [["-IS"], ["-u"]])
def test_boot_runs_the_entry_and_leaves_the_rest_of_stdin(tmp_path: Path, flags: list[str]) -> None:
    # Files in the working directory must not shadow the standard library.
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    entry = (
        "import os\nimport fabtui_node.runtime.bootloader as boot\n"
        "def main(config):\n    print(config['word'], boot.PAYLOAD['entry'], os.read(0, 100).decode(), flush=True)\n"
    )
    done = boot(entry, tmp_path, flags, b"the frames")
    assert (done.stdout, done.stderr, done.returncode) == (b"hello entry the frames\n", b"", 0)


def test_boot_of_a_child_takes_its_stdin_away(tmp_path: Path) -> None:
    entry = "import os\ndef main(config):\n    print(os.read(0, 100), flush=True)\n"
    assert boot(entry, tmp_path, ["-IS"], b"the frames", child=True).stdout == b"b''\n"


def test_boot_reports_an_error_with_its_source_line(tmp_path: Path) -> None:
    done = boot("def main(config):\n    raise KeyError('this one')\n", tmp_path, ["-IS"])
    assert done.returncode == 1
    assert b"    raise KeyError('this one')" in done.stderr
