"""Shell completion: each shell loads its script and completes commands, options and values."""

import shutil
import subprocess
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli.commands import help as completion
from fabtui.cli.main import main
from fabtui.cli.parser import build_parser
from fabtui.screen.themes import all_theme_names

#: A zsh in a pseudo terminal, where completion works; Tab, then Enter, and it prints the completed line.
_ZSH = """\
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=({folder} \\$fpath); autoload -U compinit; compinit -u -D"
zpty -w shell "fabtui() {{ print DONE \\$* }}; print READY"
zpty -r shell line '*READY*READY*'
"""
_ZSH_LINE = """\
zpty -w -n shell '{line}'$'\\t\\n'
zpty -r shell line '*DONE*'$'\\n'
print -r -- $line
"""
SHELLS = ("bash", "zsh", "fish", "tcsh")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell, named as the shell wants it."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        parser = build_parser()
        args = parser.parse_args(["completion", shell])
        args.parser = parser
        with pytest.MonkeyPatch.context() as patch:
            printed: list[str] = []
            patch.setattr("builtins.print", printed.append)
            assert completion.execute_completion(args) == 0
        (folder / ("_fabtui" if shell == "zsh" else f"fabtui.{shell}")).write_text("".join(printed))
    return folder


def run(program: str, code: str, *argv: str) -> str:
    found = shutil.which(program)
    if not found:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([found, *argv], input=code, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_each_script_knows_the_options(scripts: Path) -> None:
    for path in scripts.iterdir():
        assert "host-key-policy" in path.read_text(), path


def test_bash_completes(scripts: Path) -> None:
    code = (
        f"source {quote(str(scripts))}/fabtui.bash\nCOMP_WORDS=(fabtui run --host-key-p)\nCOMP_CWORD=2\n"
        'name=$(complete -p fabtui | sed "s/.*-F \\([^ ]*\\).*/\\1/") && "$name" fabtui --host-key-p run\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert run("bash", code, "--norc") == "--host-key-policy\n"


#: Beginnings of lines, and the word that their last one becomes.
COMPLETED = {
    "fabtui prefl": "preflight",
    "fabtui run --host-key-p": "--host-key-policy",
    "fabtui run --transport opens": "openssh",
    "fabtui read --as nvbandw": "nvbandwidth",
}


def test_fish_completes(scripts: Path) -> None:
    asked = "".join(f"complete -C {line!r}\n" for line in COMPLETED)
    printed = run("fish", f"source {quote(str(scripts))}/fabtui.fish\n{asked}", "--no-config", "--private")
    assert [found.partition("\t")[0] for found in printed.splitlines()] == [*COMPLETED.values()]


@pytest.mark.slow
def test_zsh_completes(scripts: Path) -> None:
    typed = "".join(_ZSH_LINE.format(line=line) for line in COMPLETED)
    printed = run("zsh", _ZSH.format(folder=quote(str(scripts))) + typed, "-f")
    for line, word in COMPLETED.items():
        assert f"DONE {line.partition(' ')[2].rpartition(' ')[0]} {word}".replace("  ", " ") in printed


def test_themes_are_completed_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in ("high-contrast", "catppuccin-mocha"))
    documented = (Path(__file__).parents[3] / "docs/config.md").read_text()
    assert [name for name in all_theme_names() if f"`{name}`" not in documented] == []
