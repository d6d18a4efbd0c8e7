"""Short codes and words: known ones are explained, other words are left alone."""

from __future__ import annotations

import pytest

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_numbers import short_code


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("vendor err 129", "E1", "completion status 12"),
        ("vendor_err=244", "E4", "completion status 5"),
        ("syndrom 0x81", "E1", "vendor error 129 (0x81)"),
        ("status=12", "E1", "IBV_WC_RETRY_EXC_ERR"),
        ("wc status 13", "E8", "completion status 13"),
        ("IBV_WC_RETRY_EXC_ERR", "E1", "completion status 12"),
        ("IBV_WC_LOC_PROT_ERR(4)", "E5", "completion status 4"),
        ("CUDA error 401", "E122", "401"),
        ("cuda 217", "E82", "217"),
        ("cudaErrorIllegalAddress", "E42", "700"),
        ("ncclUnhandledCudaError", "E34", "NCCL result 1"),
        ("sxid 12028", "E49", "error 12028 of an NVSwitch"),
        ("SXid-20034", "E49", "went down"),
        ("errno 110", None, "ETIMEDOUT"),
        ("NCCL_P2P_LEVEL", None, "LOC (0): no P2P"),
        ("nccl_p2p_level=LOC", None, "LOC (0): no P2P"),
        ("PXN", None, "relay over NVLink"),
        ("Fabric Manager", None, "sets up NVSwitches"),
        ("NCCL_IB_GID_INDX", None, "similar: NCCL_IB_GID_INDEX"),
    ],
)
def test_codes_and_words(text: str, code: str | None, words: str) -> None:
    found = short_code(text)
    assert found is not None
    assert words in " ".join(part for _, part in found.fields)
    assert (found.meaning.code if found.meaning else None) == code
    assert found.known is (text != "NCCL_IB_GID_INDX")


@pytest.mark.parametrize(
    "text",
    ["", "hello", "status", "79", "errno 9999", "CUDA error 12345", "NCCL WARN Cuda failure 401 'x'", "the sxid 12028"],
)
def test_other_texts_are_no_codes(text: str) -> None:
    assert short_code(text) is None


def test_grades_of_sxids_are_explained() -> None:
    xids = load("xids")
    assert {grade for _, grade in xids["sxid"].values()} == xids["sxid_grade"].keys()
    assert all(len(value) == 2 and all(value) for value in load("words")["variable"].values())
