import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from fabtui.sanitize import clean, last_line, one_line

SPELLS = "\x1b]52;c;cm0=\x07\x1b[2J\x9b31m\u202e\u200d\ufeff\u2066\u061c\x7fok"


def test_escapes_and_direction_marks_are_gone() -> None:
    assert clean(SPELLS) == "]52;c;cm0=[2J31mok"


def test_newlines_and_tabs_stay_and_line_ends_are_one_kind() -> None:
    assert clean("a\tb\r\nc\rd\u2028e") == "a\tb\nc\nd\ne"


def test_bytes_that_are_not_text_are_shown() -> None:
    assert clean(b"link \xff down") == "link \\xff down"


def test_one_line_and_last_line() -> None:
    assert one_line("  a\n\n b\t c ") == "a b c"
    assert last_line("first\nsecond \n \n") == "second"
    assert last_line("\n\n") == ""


def test_the_limit_counts_the_ellipsis() -> None:
    assert clean("abcdef", limit=4) == "abc\u2026"
    assert clean("abcd", limit=4) == "abcd"
    assert clean("abcd", limit=0) == ""


@given(st.text(alphabet=st.characters(), max_size=200), st.one_of(st.none(), st.integers(0, 50)))
def test_nothing_unfit_comes_through(text: str, limit: int | None) -> None:
    result = clean(text, limit)
    assert all(c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"} for c in result)
    assert not set(result) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\ufeff")
    result.encode("utf-8")
    if limit is not None:
        assert len(result) <= limit
    assert clean(clean(text)) == clean(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(data: bytes) -> None:
    assert "\n" not in one_line(data)
    assert "\x1b" not in clean(data)


@given(st.text(alphabet="abc XYZ-_.:/[]{}\u00e9\u4e2d\n\t", max_size=100))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text) == text
