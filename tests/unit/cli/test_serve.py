import importlib.util
from typing import Any

import pytest

from fabtui.cli.commands import app as serve
from fabtui.cli.main import main


def test_without_the_extra_one_line_reports_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "textual_serve" else find(name, *rest)

    monkeypatch.setattr(serve, "find_spec", without)
    assert main(["serve", "--lab", "2x2"]) == 2
    assert capsys.readouterr().err == (
        "fabtui: error: serve needs packages that are not installed; pip install 'fabtui[serve]'\n"
    )


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--port", "0", "--nodes", "a"], ["--nodes", "a"]),
        (["--nodes", "a", "--port=8", "--ascii"], ["--nodes", "a", "--ascii"]),
        (["--nodes", "--port-of-call"], ["--nodes", "--port-of-call"]),
        (["--replay", "r.gz", "--speed", "2"], ["--speed", "2"]),
    ],
)
def test_the_app_gets_the_arguments_without_those_of_the_server(words: list[str], kept: list[str]) -> None:
    assert serve._without_own(words) == kept
