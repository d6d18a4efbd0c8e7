"""Cases whose output is whole: prefixed, cut off and damaged; what their formats complain of."""

import json
from typing import Any

import pytest

from fabtui.importers.result import Result
from fabtui.scheduler.slurm_text import leaves, records

from .places import at, cases, of_text, output_of

WHOLE = [name for name, case in cases().items() if case.get("whole")]
each = pytest.mark.parametrize("name", WHOLE)


def facts(result: Result, name: str) -> dict[str, Any]:
    values = json.loads(json.dumps(result.values))
    return {path: at(values, path) for path in cases()[name]["facts"]}


def numbers(value: Any) -> set[float]:
    if isinstance(value, dict):
        return {number for item in value.values() for number in numbers(item)}
    if isinstance(value, list):
        return {number for item in value for number in numbers(item)}
    return {float(value)} if isinstance(value, (int, float)) and not isinstance(value, bool) else set()


@each
def test_line_ends_and_prefixes(name: str) -> None:
    output, kind = output_of(name), cases()[name]["kind"]
    lines = output.splitlines()
    for text in (
        output.replace("\n", "\r\n"),
        "\n".join(f"[rank3]: {line}" for line in lines) + "\n",
        "\n".join(f"2026-05-01 12:00:00,123 - INFO - {line}" for line in lines) + "\n",
        "\n".join(f"> {line}" for line in lines) + "\n",
        "Dear all,\n\nthis is what it prints:\n\n" + output + "\nBest regards\n",
    ):
        result = of_text(text)
        assert result.kind == kind, text
        assert facts(result, name) == cases()[name]["facts"]


@each
def test_cut_after_each_line(name: str) -> None:
    whole = of_text(output_of(name))
    lines = output_of(name).splitlines(keepends=True)
    for end in range(1, len(lines)):
        result = of_text("".join(lines[:end]), whole.kind)
        known = numbers(whole.values) | {float(number) for number in range(8)}
        # Medians and the like are of fewer values.
        known |= {17.5, 61.5, 61.0, 17.25, 12.0, 80.5} if name == "inspector" else set()
        assert numbers(result.values) <= known, end


def test_complaints_of_the_tools_are_warnings() -> None:
    assert "communicator 0xa1: the last collective is 7; behind: rank 2 (4)" in of_text(output_of("inspector")).warnings
    assert "3 wrong results" in of_text(output_of("mscclpp-test")).warnings
    assert "Port Counters: 1 errors, 2 warnings" in of_text(output_of("ibdiagnet")).warnings
    assert any("symbol_error_counter" in warning for warning in of_text(output_of("ibdiagnet")).warnings)
    assert any(
        "the run did not end" in warning for warning in of_text(output_of("ibdiagnet")[:300], "ibdiagnet").warnings
    )
    assert "1 records are cut off or damaged" in of_text(output_of("inspector")[:-100]).warnings
    assert "qperf: failed to connect to n061" in of_text("qperf: failed to connect to n061\n", "qperf").warnings


def test_a_column_that_blanks_no_longer_show() -> None:
    """A row without its runs of blanks is neither in place nor out of place."""
    squeezed = "\n".join(" ".join(line.split()) for line in output_of("mscclpp-test").splitlines()) + "\n"
    result = of_text(squeezed)
    assert result.kind == "mscclpp"
    assert [row["place"] for row in result.values["tables"][0]["rows"]] == [None, None]


def test_settings_of_two_processes_are_kept_apart() -> None:
    block = "NODE_RANK: {0}\nMASTER_ADDR: n060\nWORLD_SIZE: 8\n"
    values = of_text(block.format(0) + "loading\n" + block.format(1)).values
    assert [(row["printed_by"], row["NODE_RANK"]) for row in values["settings"]] == [("line 1", "0"), ("line 5", "1")]


def test_times_that_a_script_prints_alone() -> None:
    values = of_text(output_of("job") + "iteration 10 : 9.9 s\niteration 20 : 1.25 s\n").values
    assert [(row["iteration"], row["elapsed"]) for row in values["iterations"]] == [(10, 1.4238), (20, 1.25)]


def test_a_node_below_two_leaves_has_none() -> None:
    text = output_of("topology").replace("Nodes=n[062-063]", "Nodes=n[061-063]", 1)
    assert "n061" not in leaves(records(text.splitlines()))
    assert "n061 is below leaf2 and another leaf" in of_text(text).warnings


def test_an_experiment_without_its_title_is_a_table_of_its_own() -> None:
    rows = output_of("experiment").split("iters=50\n")[1]
    values = of_text(rows).values
    assert values["tables"][0]["operation"] is None
    assert values["tables"][0]["rows"][0]["bytes"] == 536870912
