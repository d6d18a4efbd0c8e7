"""Pairs of scontrol's records."""

from __future__ import annotations

from fabtui.scheduler.slurm_text import known_pairs, pairs


def test_a_value_extends_to_the_next_name_which_begins_with_a_capital() -> None:
    line = "JobId=7 JobName=train lr=0.1 steps=9 NumNodes=2 TresPerNode=gres/gpu:8 MCS_label=N/A"
    assert pairs(line) == {
        "JobId": "7",
        "JobName": "train lr=0.1 steps=9",
        "NumNodes": "2",
        "TresPerNode": "gres/gpu:8",
        "MCS_label": "N/A",
    }


def test_what_is_free_text_is_the_rest_of_its_line() -> None:
    assert pairs("   Reason=Not responding State=x [root@2026-11-27T01:00:00]") == {
        "Reason": "Not responding State=x [root@2026-11-27T01:00:00]"
    }
    assert pairs("no pairs at all") == {}


def test_values_that_slurm_does_not_know_are_left_out() -> None:
    assert known_pairs("A=(null) B=N/A C=n/a D=n/s E=Unknown F= G=0") == {"G": "0"}
