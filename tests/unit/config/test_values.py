from collections.abc import Callable
from functools import partial

import pytest

from fabtui.config import values
from fabtui.errors import InputError
from fabtui.presentation.numbers import size_text, value_text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("256M", 256 << 20),
        ("4MiB", 4 << 20),
        ("1G", 1 << 30),
        ("1GB", 10**9),
        ("8k", 8192),
        ("64", 64),
        ("1.5M", 3 << 19),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert values.size(text, "--bytes") == count


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8M", (8 << 20,)),
        ("256M,8M", (8 << 20, 256 << 20)),
        ("8M,8MiB", (8 << 20,)),
        ("8-64", (8, 16, 32, 64)),
        ("8-100", (8, 16, 32, 64)),
        ("8-1K:4", (8, 32, 128, 512)),
        ("1G-1G", (1 << 30,)),
        ("8-32,1M", (8, 16, 32, 1 << 20)),
        ("8-64G", tuple(1 << n for n in range(3, 37))),
    ],
)
def test_lists_and_ranges_of_sizes(text: str, found: tuple[int, ...]) -> None:
    assert values.sizes(text, "--sizes", 40) == found


def test_there_are_not_too_many_sizes() -> None:
    with pytest.raises(InputError, match="more than 3 sizes"):
        values.sizes("8-1G", "--sizes", 3)


def test_times() -> None:
    assert values.seconds("2.5", "--timeout", 0.5, 3600) == 2.5
    assert values.seconds("10s", "--timeout", 0.5, 3600) == 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (351.2, "351"),
        (46.12, "46.1"),
        (1.234, "1.23"),
        (0.0453, "0.045"),
        (0.0, "0.00"),
        (1.2e-5, "1.2e-05"),
        (99.96, "100"),
        (9.996, "10.0"),
        (0.09951, "0.10"),
    ],
)
def test_values_have_three_digits(value: float | None, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(("count", "text"), [(256 << 20, "256 MiB"), (1000, "1000 B"), (3 << 30, "3 GiB"), (0, "0 B")])
def test_size_text(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(("text", "share"), [("40", 0.4), ("40%", 0.4), (" 12.5 % ", 0.125), ("0", 0.0), ("100", 1.0)])
def test_percentages(text: str, share: float) -> None:
    assert values.percentage(text, "--limit-share") == share


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (values.size, ("", "12Q", "-4", "0", "3", "1e9", "1.0000001k", "999T", "4 M B", "nan", "\u0664K")),
        (partial(values.sizes, most=40), ("", ",", "8,", "8-", "-8", "8-4", "8-16-32", "8-16:", "8-16:1", "8-16:x")),
        (partial(values.sizes, most=40), ("8:2", "8-x", "3-9", "8-16:1.5", "8-99T")),
        (partial(values.seconds, least=0.5, most=3600), ("", "nan", "inf", "-1", "0", "x", "1e9")),
        (partial(values.count, least=1, most=100), ("", "x", "1.5", "-1", "0", "101", "9" * 40)),
        (values.percentage, ("", "-1", "101", "nan", "half", "0.5.1")),
    ],
)
def test_what_is_no_value_is_reported(read: Callable[[str, str], object], texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(InputError, match="--option"):
            read(text, "--option")
