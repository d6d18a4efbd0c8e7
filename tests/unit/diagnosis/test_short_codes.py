"""Short codes, words and numbers of errors: known ones are explained in every spelling, others are left alone."""

import pytest

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_numbers import error_numbers, number_in, short_code
from tests.unit.diagnosis.texts import texts


@pytest.mark.parametrize(("text", "code", "words"), texts("codes and words"))
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


@pytest.mark.parametrize(("line", "table", "number"), texts("numbers of errors"))
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
