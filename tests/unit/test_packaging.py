"""The shipped packages: a wheel and an sdist that work on their own, with all data inside."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import fabtui
from fabtui.paths import data_folder, shipped_recordings_folder, theme_folder

ROOT = Path(fabtui.__file__).parent.parent
in_checkout = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not a checkout")
#: pip and uv about an index whose name does not resolve, or that nothing listens for.
NO_INDEX = re.compile(r"NewConnectionError|[Nn]ame resolution|dns error|[Cc]onnection refused")
needs_build = pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")


def test_the_data_lies_beside_the_package_in_a_checkout() -> None:
    assert theme_folder() == ROOT / "themes"
    assert sorted(path.suffix for path in theme_folder().iterdir())[0] == ".toml"
    assert shipped_recordings_folder() == ROOT / "recordings"


def test_the_data_lies_inside_the_package_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.paths._PACKAGE", tmp_path / "fabtui")
    (tmp_path / "themes").mkdir()
    assert data_folder("themes") == tmp_path / "fabtui" / "_themes"


@in_checkout
def test_the_version_is_one() -> None:
    import tomllib

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == fabtui.__version__
    assert f"version: {fabtui.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def build(source: Path, out: Path) -> None:
    out.mkdir()
    code = "import sys, hatchling.build as it\nit.build_sdist(sys.argv[1])\nit.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=source, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built of a copy of what is shipped."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    out = folder / "dist"
    build(source, out)
    return out


def _files(folder: Path, pattern: str, name: str) -> set[str]:
    return {f"{name}/{path.relative_to(folder)}" for path in folder.glob(pattern)}


@in_checkout
@needs_build
@pytest.mark.slow
def test_the_wheel_holds_all_code_and_data_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    code = _files(ROOT / "fabtui", "**/*.py", "fabtui") | _files(ROOT / "probes/fabtui_node", "**/*.py", "fabtui_node")
    data = _files(ROOT / "themes", "*.toml", "fabtui/_themes")
    data |= _files(ROOT / "recordings", "*.md", "fabtui/_recordings")
    data |= _files(ROOT / "recordings", "*.jsonl.gz", "fabtui/_recordings")
    for suffix in ("tcss", "toml", "json", "css", "js", "html"):
        data |= _files(ROOT / "fabtui", f"**/*.{suffix}", "fabtui")
    manual = f"fabtui-{fabtui.__version__}.data/data/share/man/man1/fabtui.1"
    assert code | data | {"fabtui/py.typed", "fabtui_node/py.typed", manual} == names


@in_checkout
@needs_build
@pytest.mark.slow
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    """The second one from the sdist, in another folder, later and with other permissions."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    for path in source.rglob("*"):
        path.touch()
        path.chmod(path.stat().st_mode & ~0o077)
    build(source, tmp_path / "dist")
    for package in (tmp_path / "dist").iterdir():
        assert (built / package.name).read_bytes() == package.read_bytes(), package.name


@in_checkout
@needs_build
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_installs_with_uv_and_runs_from_one_file(built: Path) -> None:
    """Packages come from the index that pip is set up with; tools/check_installs.py has the other ways.

    The node side has to be found and sent from inside the wheel as well.
    """
    python = "{}.{}".format(*sys.version_info[:2])
    (wheel,) = built.glob("*.whl")
    zipapp: list[str | Path] = [ROOT / "tools/build_zipapp.py", wheel, built / "fabtui.pyz", "--python", python]
    for argv in (zipapp, [ROOT / "tools/check_installs.py", "--dist", built, "uv", "zipapp"]):
        done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=300)
        if done.returncode and (unreached := NO_INDEX.search(done.stdout + done.stderr)):
            pytest.skip(f"no package index can be reached: {unreached[0]}")
        assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["uv", "zipapp"]


@in_checkout
@needs_build
@pytest.mark.slow
def test_the_sdist_can_be_built_and_tested(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        *("LICENSE", "README.md", "Makefile", "pyproject.toml"),
        *("probes/fabtui_node/protocol.py", "tests/conftest.py"),
    }
    assert wanted <= names
    assert _files(ROOT / "themes", "*.toml", "themes") <= names
    assert not [name for name in names if name.endswith(".pyc")]
