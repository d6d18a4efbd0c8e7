"""The shipped packages: a wheel and an sdist that work on their own, with all data inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import fabtui
from fabtui.paths import data_folder, shipped_recordings_folder, theme_folder

ROOT = Path(fabtui.__file__).parent.parent
in_checkout = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not a checkout")
needs_build = pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed")


def test_the_data_lies_beside_the_package_in_a_checkout() -> None:
    assert theme_folder() == ROOT / "themes"
    assert sorted(path.suffix for path in theme_folder().iterdir())[0] == ".toml"
    assert shipped_recordings_folder() == ROOT / "recordings"


def test_the_data_lies_inside_the_package_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.paths._PACKAGE", tmp_path / "fabtui")
    (tmp_path / "themes").mkdir()
    assert data_folder("themes") == tmp_path / "fabtui" / "_themes"


@in_checkout
def test_all_packages_are_listed() -> None:
    import tomllib

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for folder, name in (("fabtui", "fabtui"), ("probes/fabtui_node", "fabtui_node")):
        found = {path.parent.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.py")}
        names = {".".join((name, *part.parts)) for part in found}
        assert names <= set(listed), f"not in pyproject.toml: {names - set(listed)}"


@in_checkout
def test_the_version_is_one() -> None:
    import tomllib

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == fabtui.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built of a copy of what is shipped."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    out = folder / "dist"
    out.mkdir()
    build = (
        "import sys, setuptools.build_meta as backend\nout = sys.argv[1]\n"
        "backend.build_sdist(out)\nbackend.build_wheel(out)"
    )
    subprocess.run([sys.executable, "-c", build, str(out)], cwd=source, check=True, capture_output=True, timeout=120)
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
    for suffix in ("tcss", "toml", "json"):
        data |= _files(ROOT / "fabtui", f"**/*.{suffix}", "fabtui")
    assert code | data | {"fabtui/py.typed", "fabtui_node/py.typed"} == names


@in_checkout
@needs_build
@pytest.mark.slow
def test_the_sdist_can_be_built_and_tested(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "LICENSE",
        "README.md",
        "Makefile",
        "pyproject.toml",
        "probes/fabtui_node/protocol.py",
        "tests/conftest.py",
    }
    assert wanted <= names
    assert _files(ROOT / "themes", "*.toml", "themes") <= names
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a virtual environment that has the wheel, and shares all else with this interpreter."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Behind the wheel on the path, without the import hook of an editable install.
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    script = folder / "bin" / "fabtui"
    script.write_text(f"#!{folder}/bin/python\nimport sys\nfrom fabtui.cli.main import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return folder / "bin"


def _run(installed: Path, *argv: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [installed / "fabtui", *argv], cwd="/", env=environment, capture_output=True, text=True, timeout=timeout
    )


@in_checkout
@needs_build
@pytest.mark.slow
def test_the_wheel_runs(installed: Path) -> None:
    done = _run(installed, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fabtui {fabtui.__version__}\n", "")
    themes = [line for line in _run(installed, "info").stdout.splitlines() if line.startswith("  themes")]
    assert themes[0].endswith("/fabtui/_themes")


@in_checkout
@needs_build
@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_wheel_runs_a_lab(installed: Path, tmp_path: Path) -> None:
    """The node side has to be found and sent from inside the wheel as well."""
    csv = tmp_path / "s.csv"
    done = _run(
        installed, "run", "--lab", "1x2", "--no-record", "--quiet", "--bytes", "64K", "--csv", str(csv), timeout=100
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    verdicts = [line.split(",")[9] for line in csv.read_text().splitlines() if ",p2p," in line]
    assert verdicts.count("ok") + verdicts.count("slow") == 2
