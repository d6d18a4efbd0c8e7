from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.export.formats import escaped, unescaped


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "'=1", "'x"])
def test_what_a_spreadsheet_would_run_is_marked(text: str) -> None:
    assert escaped(text) == "'" + text


@pytest.mark.parametrize("text", ["", "n060:3", "NET/IB/5", "a=b", "it's", "0.0.0.0"])
def test_plain_text_stays(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.slow
@given(st.text())
def test_there_and_back(text: str) -> None:
    assert unescaped(escaped(text)) == text
    assert escaped(text)[:1] not in tuple("=+-@\t\r")
