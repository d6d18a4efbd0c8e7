"""Tables in documents of users: each number that is printed there is read. The documents are read in place."""

import re
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.export.collectives_table import table_rows
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import model
from fabtui.report.collectives import sweep_tables
from fabtui.report.text import text_lines

from .places import REAL, of_text

DOCUMENTS = REAL.parents[1] / "seeds"
pytestmark = pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="no real samples here (FABTUI_REAL_SAMPLES)")


def document(number: str) -> str:
    (path,) = DOCUMENTS.glob(f"{number}_*.txt")
    return path.read_text()


def between(text: str, first: str, last: str) -> str:
    found = re.search(f"{first}.*?{last}", text, re.S | re.M)
    assert found is not None
    return "".join(line for line in found[0].splitlines(keepends=True) if not line.startswith("```"))


def read_as(text: str, kind: str) -> Result:
    result = of_text(text)
    assert (result.kind, result.unknown) == (kind, [])
    return result


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"\d+\.?\d*(?:E[+-]\d+)?", text)]


def test_sweeps_of_mscclpp() -> None:
    text = between(document("004"), r"^#{40,} Allgather", r"^- With proxy")
    rows = [numbers(line) for line in text.splitlines() if re.fullmatch(r"\s*[\d.]+(?:\s+[\d.]+){4}", line)]
    found = read_as(text, "mscclpp").values["tables"]
    columns = ("bytes", "avg_time", "min_time", "avg_algbw", "max_algbw")
    assert [[row[name] for name in columns] for table in found for row in table["rows"]] == rows
    assert len(rows) == 6
    settings = [[int(word) for word in re.findall(r"=(\d+)", block)] for block in text.split("KERNEL_FILE=")[:-1]]
    shown = [[value for value in table["settings"].values() if isinstance(value, int)] for table in found]
    assert shown == settings
    assert [table["ranks"] for table in found] == [8] * 6
    exported = table_rows(model([of_text(text)]))
    assert len(exported) == 3, "the second kernel's results are the latest"
    printed = {row[1]: row for row in rows}
    for one in exported:
        numbers_of_row = [one.bytes, one.time_us, one.time_min_us, one.algbw, one.algbw_max]
        assert numbers_of_row == pytest.approx(printed[round(one.time_us or 0, 2)], rel=1e-4)
    assert [table["operation"] for table in found] == re.findall(r"^#{40,} (\w+) #", text, re.M)


def test_links_of_nvlink() -> None:
    text = document("002")
    errors = between(text, r"^GPU 0: NVIDIA H100[^\n]*\n\s+Link 0: Replay", r"^```")
    printed = re.findall(r"Link (\d+): (\w+) Errors: (\d+)", errors)
    (gpu,) = read_as(errors, "nvidia-smi-nvlink-e").values["gpus"]
    found = {(link["link"], name): count for link in gpu["links"] for name, count in link["counters"].items()}
    assert found == {(int(link), name.lower()): int(count) for link, name, count in printed}
    assert gpu["uuid"] in text
    status = between(text, r"^GPU 0: NVIDIA H100[^\n]*\n\s+Link 0: [\d.]+ GB", r"^```")
    (gpu,) = read_as(status, "nvidia-smi-nvlink-s").values["gpus"]
    speeds = re.findall(r"Link (\d+): ([\d.]+) GB/s", status)
    assert [(link["link"], link["speed"]) for link in gpu["links"]] == [(int(at), float(speed)) for at, speed in speeds]


def test_monitor_of_a_job() -> None:
    text = between(document("001"), r"^\*+ last output message", r"^debug\?[^\n]*\n")
    result = read_as(text, "job-monitor")
    found = result.values
    assert [row["lines"] for row in found["lines"]] == [
        int(word) for word in re.findall(r"^(\d+) lines\.\.", text, re.M)
    ]
    gpus = [numbers(line) for line in text.splitlines() if re.match(r"\[\d+\] NVIDIA", line)]
    names = ("index", "temperature", "utilization", "memory_used", "memory_total")
    assert [[row[name] for name in names] for row in found["gpus"]] == [[row[0], *row[2:]] for row in gpus]
    # No GPU of any node does anything; if those of one node did, the other would be named.
    named = [one for one in result.warnings if "GPUs are busy" in one]
    first, *others = dict.fromkeys(row["node"] for row in found["gpus"])
    head, mark, rest = text.partition(f"/{others[0]}.gpu <==")
    one_busy = head + mark + rest.replace("|     0 / 22731 MB |", "| 14020 / 22731 MB | me(13980M)")
    more = [one for one in read_as(one_busy, "job-monitor").warnings if "GPUs are busy" in one]
    text_of = f"{first}: 0 of 4 GPUs are busy; all GPUs of the other nodes are busy"
    assert (named, more, len(others)) == ([], [text_of], 1)
    assert {row["node"] for row in found["gpus"]} == set(re.findall(r"^==> \S*?(\w+)\.gpu <==", text, re.M))
    times = {int(at): float(time) for at, time in re.findall(r"^iteration (\d+) : ([\d.]+) s", text, re.M)}
    assert {row["iteration"]: row["elapsed"] for row in found["iterations"]} == times
    losses = {int(at): float(loss) for at, loss in re.findall(r"iteration +(\d+)/.*lm loss: (\S+)", text)}
    assert {row["iteration"]: row["loss"] for row in found["iterations"] if row["loss"]} == losses
    settings = dict(re.findall(r"^([A-Z_]+): (\S+)$", text, re.M))
    (shown,) = found["settings"]
    assert {name: value for name, value in shown.items() if name != "printed_by"} == settings
    memory = re.findall(r"\[Rank (\d+)\].*?\| allocated: ([\d.]+)", text)
    assert [(row["rank"], row["allocated"]) for row in found["memory"]] == [(int(at), float(mb)) for at, mb in memory]


def test_tails_of_a_job_one_by_one() -> None:
    text = between(document("001"), r"^\*+ last output message", r"^debug\?[^\n]*\n")
    tails = re.findall(r"^==> \S+?(\w+\.\w+) <==\n(.*?)(?=^==>|^\d+ lines|^\*\*\*)", text, re.M | re.S)
    kinds = {name: of_text(tail).kind for name, tail in tails}
    assert {kind for name, kind in kinds.items() if not name.endswith((".err", ".gpu"))} == {"megatron-log"}
    times = between(text, r"^iteration 10 :", r"^iteration 50[^\n]*\n")
    rows = read_as(times, "megatron-log").values["iterations"]
    assert [row["elapsed"] for row in rows] == [float(word) for word in re.findall(r": ([\d.]+) s", times)]


@pytest.mark.parametrize("whole", [True, False])
def test_table_with_and_without_rdma(whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = between(document("003"), "^We conducted" if whole else "^<table", "</table>\n")
    cells = re.findall(r"<td[^>]*>([\d.-]+)</td>", text)
    table = [[None if word == "-" else float(word) for word in cells[at : at + 5]] for at in range(0, len(cells), 5)]
    (found,) = read_as(text, "busbw-table").values["tables"]
    expected = [[row[0], *row[at : at + 2]] for row in table for at in (1, 3)]
    assert [[row["number"], row["busbw"], row["algbw"]] for row in found["rows"]] == expected
    assert {row["arm"] for row in found["rows"]} == {"RDMA", "NO RDMA"}
    if whole:
        assert found["unit"] == "Gbps"
        with_name = text.replace("benchmark", "all_reduce benchmark", 1)
        lines = text_lines(sweep_tables(model([of_text(with_name)])))
        gigabits = lines[next(at for at, line in enumerate(lines) if ", Gb/s" in line) :]
        shown: list[list[Any]] = [
            [*map(float, re.findall(r"\d+\.?\d*", line))] for line in gigabits if line.strip()[:1].isdigit()
        ]
        for row, printed in zip(table, shown, strict=True):
            assert printed == pytest.approx([value for value in row if value is not None], rel=0.005)
        page = tmp_path / "report.md"
        (tmp_path / "named.html").write_text(with_name)
        assert entry.main(["report", str(tmp_path / "named.html"), "-o", str(page)]) == 0
        assert "by number of GPUs, Gb/s" in page.read_text()
        assert "by number of GPUs, GB/s" in page.read_text()
    path = tmp_path / "table.html"
    path.write_text(text)
    assert entry.main(["read", str(path)]) == 0
    assert cells[1] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "first", "last", "known"),
    [
        ("001", r"^\*+ last output message", r"^debug\?[^\n]*\n", r"^(\d+) lines"),
        ("002", r"^GPU 0: NVIDIA H100[^\n]*\n\s+Link 0: Replay", r"^```", r"UUID: ([\w-]+)"),
        ("002", r"^GPU 0: NVIDIA H100[^\n]*\n\s+Link 0: [\d.]+ GB", r"^```", r"Link 17: ([\d.]+)"),
        ("003", "^We conducted", "</table>\n", r"<td[^>]*>([\d.]{6})<"),
        ("004", r"^#{40,} Allgather", r"^- With proxy", r" (\d+\.\d\d) "),
    ],
)
def test_a_report_of_each_has_its_numbers(number: str, first: str, last: str, known: str, tmp_path: Path) -> None:
    text = between(document(number), first, last)
    (tmp_path / "cut.txt").write_text(text)
    page = tmp_path / "report.html"
    assert entry.main(["report", str(tmp_path / "cut.txt"), "-o", str(page)]) == 0
    words = [re.sub(r"(\.\d*?)0+$", r"\1", word).rstrip(".") for word in re.findall(known, text, re.M)]
    assert words
    assert all(word in page.read_text() for word in words)
