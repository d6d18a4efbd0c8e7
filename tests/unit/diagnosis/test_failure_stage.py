"""Stages of failures: by source file, by words and numbers; other programs' lines have none."""

import re

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import programs_in
from fabtui.diagnosis.knowledge.failure_stage import stage_failure, stage_of_file, stages
from fabtui.diagnosis.knowledge.log_causes import LogReader
from tests.unit.diagnosis.texts import texts


@pytest.mark.parametrize(("line", "code", "words"), texts("failures with a stage"))
def test_a_failure_has_a_stage_and_its_number(line: str, code: str, words: str) -> None:
    found = stage_failure(line)
    assert found is not None
    assert (found.code, words in found.text) == (code, True), found.text


def test_perftest_prints_words_of_many_programs() -> None:
    line = "Couldn't create receive completion channel of the QP"
    assert stage_failure(line) is None
    found = stage_failure(line, programs=programs_in(f"$ ib_write_bw n061\n{line}"))
    assert found is not None
    assert found.code == "E224"


@pytest.mark.parametrize("line", texts("lines without a stage"))
def test_other_lines_have_no_stage(line: str) -> None:
    assert stage_failure(line) is None
    if "Init START" in line:
        return  # Without its end it is the sign of another failure.
    reader = LogReader()
    reader.add(line)
    assert reader.result().causes == []


def test_the_first_step_fits_the_number() -> None:
    found = stage_failure("n1:4:5 [1] transport/p2p.cc:7 NCCL WARN Cuda failure 35 'odd'")
    assert found is not None
    assert found.next.startswith("Compare the driver (nvidia-smi) with the CUDA version")
    assert "NCCL_P2P_DISABLE=1" in found.next


def test_the_stages_are_valid() -> None:
    found = stages()
    assert len({one.id for one in found}) == len({one.meaning.code for one in found}) == len(found)
    for one in found:
        assert re.fullmatch(r"E2\d\d", one.meaning.code)
        assert one.meaning.next.endswith(".")
        for pattern in filter(None, (one.files, one.words)):
            assert not re.search(r"\{\d+,\}|\)[*+]|\.[*+]", pattern), one.id


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("src/transport/net_ib/p2p.cc", "rdma"),
        ("transport/p2p.cc", "p2p"),
        ("misc/socket.cc", "tcp"),
        ("socket.cpp", "store"),
        ("ProcessGroupNCCL.cpp", "watchdog"),
        ("gloo/transport/tcp/socket.cc", "gloo"),
        ("main.cc", None),
    ],
)
def test_a_source_file_belongs_to_a_stage(path: str, stage: str | None) -> None:
    found = stage_of_file(path)
    assert (found and found.id) == stage
