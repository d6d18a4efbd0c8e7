"""Short codes, words and numbers of errors: known ones are explained in every spelling, others are left alone."""

from __future__ import annotations

import pytest

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_numbers import error_numbers, number_in, short_code


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


@pytest.mark.parametrize(
    ("line", "table", "number"),
    [
        ("Got completion with error 12, opcode 0, len 0, vendor err 129", "completion", 12),
        ("Got completion from peer 10.2.0.5<1> with status=13 opcode=0 len=0 vendor err 135", "completion", 13),
        ("with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129", "completion", 12),
        ("wc->status=(IBV_WC_REM_OP_ERR)11", "completion", 11),
        (" Failed status 12: wr_id 0 syndrom 0x81", "completion", 12),
        (" Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81", "completion", 12),
        ("status=12", "completion", 12),
        ("vendor err 129", "completion", 12),
        ("syndrom 0x81", "completion", 12),
        ("work completion: remote access error", "completion", 10),
        ("Cuda failure 401 'the operation cannot be performed in the present state'", "cuda", 401),
        ("Cuda failure 'peer access is not supported between these two devices'", "cuda", 217),
        ("failed to open CUDA IPC handle : 217 peer access", "cuda", 217),
        ("CUDA error 719", "cuda", 719),
        ("cuMemCreate failed: CUDA_ERROR_ILLEGAL_STATE", "cuda", 401),
        ("HIP failure: 'invalid argument'", "cuda", 1),
        ("Call to ibv_reg_mr failed with error Invalid argument", "errno", 22),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0", "errno", 110),
        ("Couldn't allocate MR with error=14", "errno", 14),
        ("NET/OFI Unable to register memory. RC: -22, Error: Invalid argument", "errno", 22),
        ("port: 29500, useIpv6: false, code: -98, name: EADDRINUSE", "errno", 98),
        ("failed : Software caused connection abort", "errno", 103),
        ("NCCL INFO transport/nvls.cc:409 -> 1", "nccl", 1),
        ("ncclRemoteError: A call failed", "nccl", 6),
    ],
)
def test_a_number_is_read_in_every_spelling(line: str, table: str, number: int) -> None:
    found = number_in(line)
    assert found is not None
    assert (found.table, found.number) == (table, number)


@pytest.mark.parametrize(
    "line", ["", "exit status=1", "HTTP status 404", "returned 12", "epoch 3: loss 12", "0 errors"]
)
def test_other_numbers_are_none_of_errors(line: str) -> None:
    assert number_in(line) is None


@pytest.mark.parametrize("table", ["cuda", "errno", "completion", "nccl"])
def test_each_number_is_found_by_its_name_and_in_its_sentence(table: str) -> None:
    for one in error_numbers(table).values():
        assert number_in(one.name) == one
        assert number_in(one.sentence) == one
        assert one.text[0].islower() or one.text[0].isupper()
        assert not one.text.endswith(".")
