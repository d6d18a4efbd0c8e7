"""Time stamps of lines of logs: those of PyTorch have three digits until September and four from October on."""

import time
from datetime import datetime

import pytest

from fabtui.diagnosis.job.logs.error_lines import error_of
from fabtui.diagnosis.knowledge.log_causes import seconds_of, stamp_of

REST = "16:08:12.123456789 ProcessGroupNCCL.cpp:616] [Rank 1] something failed"


@pytest.mark.parametrize("month", range(1, 13))
def test_every_month_of_pytorch_and_glog(month: int) -> None:
    for day in (1, 4, 28):
        for digits in (f"{month}{day:02}", f"{month:02}{day:02}"):
            line = f"[rank1]:[E{digits} {REST}"
            found = stamp_of(line)
            assert found is not None, line
            assert (found.month, found.day, found.hour, found.second) == (month, day, 16, 12), line
            # The monitor of jobs takes such a line for an error, with its time.
            error = error_of(line)
            assert error is not None, line
            assert (error.kind.name, error.when) == ("logged", found.timestamp()), line


@pytest.mark.parametrize("month", range(1, 13))
@pytest.mark.parametrize(
    "form",
    [
        "[%a %b %e %H:%M:%S %Y] NVRM: Xid",
        "%a %b %d %H:%M:%S %Y x",
        "[%b %d %Y %H:%M:%S] [ERROR] x",
        "%b %e %H:%M:%S n060 kernel: x",
        "%Y/%m/%d %H:%M:%S x",
    ],
)
def test_every_month_of_the_kernel_and_its_services(month: int, form: str) -> None:
    for day in (1, 20):
        moment = datetime(datetime.now().year - 1, month, day, 10, 12, 40)
        found = stamp_of(moment.strftime(form))
        assert found is not None
        # Without a year it is the last such day.
        assert (found if "%Y" in form else found.replace(year=moment.year)) == moment


def test_zones_are_converted_to_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    try:
        here = seconds_of("2026-11-22 21:00:05,120 x")
        assert here is not None
        assert seconds_of("2026-11-22T12:00:05.120Z x") == here == seconds_of("[2026-11-22T13:00:05.12+0100] x")
        assert stamp_of("2026-11-22T12:00:05Z") == datetime(2026, 11, 22, 21, 0, 5)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        *("E13 x", "E1304 16:08:12", "E0004 16:08:12", "2026-13-40 10:00:00", "WE704 16:08:12", ""),
        *("XNov 20 10:12:40", "Nov 31 10:12:40 2025", "Nov 20 10:12"),
    ],
)
def test_what_is_no_stamp(text: str) -> None:
    assert stamp_of(text) is None


def test_the_day_of_a_leap_year_is_of_the_last_one() -> None:
    found = stamp_of("[E229 10:00:00.5 x.cpp:1]")
    assert found is not None
    assert (found.year % 4, found.month, found.day) == (0, 2, 29)
    assert found <= datetime.now()
