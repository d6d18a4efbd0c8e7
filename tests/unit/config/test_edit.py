"""Changes of single settings in a settings file: everything else in it stays as it is."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.cli.main import main
from fabtui.config.file import edited, setting_named, template, value_of, write_settings
from fabtui.config.options import settings
from fabtui.errors import InputError

THEME = settings()["screen.theme"]
TIMEOUT = settings()["session.timeout"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[screen]\ntheme = "nord"\n'),
        ("[session]\ntimeout = 5", '[session]\ntimeout = 5\n\n[screen]\ntheme = "nord"\n'),
        ('[screen]\ntheme = "dark"\n', '[screen]\ntheme = "nord"\n'),
        ('[screen]\n  theme="a # b"   # mine\n', '[screen]\n  theme= "nord"   # mine\n'),
        ('# a\n[screen]\n# w\n#theme = "dark"\nascii = true\n', '# a\n[screen]\n# w\ntheme = "nord"\nascii = true\n'),
        ("[screen]\nascii = true", '[screen]\ntheme = "nord"\nascii = true'),
        ("[screen]\r\nascii = true\r\n", '[screen]\r\ntheme = "nord"\r\nascii = true\r\n'),
        ('screen.theme = "dark"\n', 'screen.theme = "nord"\n'),
        ('[keys]\n#theme = "x"\n', '[keys]\n#theme = "x"\n\n[screen]\ntheme = "nord"\n'),
    ],
)  # fmt: skip
def test_one_line_changes(before: str, after: str) -> None:
    assert edited(before, THEME, "nord") == after


def test_the_default_comments_a_line_out() -> None:
    text = "[session]\ntimeout = 20  # slow login\n"
    assert edited(text, TIMEOUT, None) == "[session]\n#timeout = 20  # slow login\n"
    assert edited("[session]\n", TIMEOUT, None) == "[session]\n"
    assert edited(edited(text, TIMEOUT, None), TIMEOUT, 5) == "[session]\ntimeout = 5\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[screen", "is not TOML"),
        ('[session]\nprobes = [\n  "ping",\n]\n', "in a form that fabtui cannot edit"),
        ('session = { probes = ["ping"] }\n', "in a form that fabtui cannot edit"),
        ('x = """\n[session]\nprobes = 1\n"""\n', "in a form that fabtui cannot edit"),
    ],
)
def test_what_cannot_be_changed_is_refused(text: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        edited(text, settings()["session.probes"], ["p2p"])


@given(st.sampled_from(sorted(settings())), st.booleans())
def test_every_setting_of_the_template_can_be_set_to_its_example(key: str, twice: bool) -> None:
    spec = settings()[key]
    value = tomllib.loads(f"value = {spec.example}")["value"]
    before = template([])
    text = edited(before, spec, value)
    if twice:
        text = edited(text, spec, value)
    assert tomllib.loads(text)[spec.table] == {spec.name: value}
    changed = [pair for pair in zip(before.splitlines(), text.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(changed) == 1


def test_a_text_becomes_a_value_or_one_clear_line() -> None:
    assert value_of(TIMEOUT, "20") == 20
    assert value_of(TIMEOUT, "0.5") == 0.5
    assert value_of(settings()["screen.ascii"], "yes") is True
    assert value_of(settings()["session.probes"], "ping, p2p") == ["ping", "p2p"]
    assert value_of(settings()["session.env"], "A=1,B=x=y") == {"A": "1", "B": "x=y"}
    assert value_of(THEME, "default") is None
    for name, text, word in (
        ("screen.colors", "255", "did you mean 256"),
        ("timeout", "soon", "session.timeout: 'soon' is not"),
        ("screen.ascii", "maybe", "neither true nor false"),
        ("session.env", "A", "'A' is not a variable with a string"),
        ("session.probes", "pnig", "ping"),
    ):
        with pytest.raises(InputError, match=word):
            value_of(setting_named(name), text)
    with pytest.raises(InputError, match=r"^there is no setting 'timout'; did you mean timeout\?$"):
        setting_named("timout")


def test_a_link_stays_one_and_a_missing_file_begins_with_the_template(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text("[screen]\n")
    link.symlink_to(real)
    write_settings(link, {"screen.theme": "nord", "session.timeout": "5"}, str)
    assert link.is_symlink()
    assert real.read_text() == '[screen]\ntheme = "nord"\n\n[session]\ntimeout = 5\n'
    fresh = tmp_path / "folder" / "new.toml"
    write_settings(fresh, {"screen.theme": "nord"}, lambda: '# all settings\n[screen]\n#theme = "dark"\n')
    assert fresh.read_text() == '# all settings\n[screen]\ntheme = "nord"\n'
    assert fresh.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match="cannot write"):
        write_settings(tmp_path, {"screen.theme": "nord"}, str)
    real.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        write_settings(real, {"screen.theme": "nord"}, str)


def test_config_set_writes_and_config_show_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "c.toml")
    assert main(["config", "set", "--config", path, "theme", "light"]) == 0
    assert capsys.readouterr().out == f"{path}: screen.theme = light\n"
    assert main(["config", "show", "--config", path]) == 0
    assert "screen.theme             light" in capsys.readouterr().out.replace("  c.toml", "")
    for words in (["set", "theme"], ["set", "theme", "nosuch"], ["set", "thme", "x"], ["show", "theme", "x"]):
        assert main(["config", *words, "--config", path]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_table_of_a_setting_outside_of_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.toml"
    for text, problem in (
        ('theme = "x"\n', "theme is outside of its table; write [screen] on the line above it"),
        ("timout = 3\n", "unknown setting timout; settings belong under [screen], [session], [recording], [keys]"),
        ("[window]\n", "unknown table [window]; there are [screen]"),
    ):
        path.write_text(text)
        assert main(["config", "validate", "--config", str(path)]) == 2
        assert f"{path}:1: {problem}" in capsys.readouterr().err
