from bisect import insort

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabtui.model import class_statistics
from fabtui.model.class_statistics import ClassValues


def _agree(found: ClassValues, wanted: list[float]) -> None:
    assert len(found) == len(wanted)
    assert list(found.sorted()) == wanted
    assert [found.lowest, found.highest] == ([wanted[0], wanted[-1]] if wanted else [None, None])


@pytest.mark.fuzz
@given(st.lists(st.integers(0, 9)), st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
@settings(max_examples=200)
def test_it_is_what_a_sorted_list_is(first: list[int], steps: list[tuple[bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_statistics, "_MOST_INSERTED", 2)
        wanted = sorted(map(float, first))
        found = ClassValues(map(float, first))
        _agree(found, wanted)
        for add, value in steps:
            if add:
                insort(wanted, float(value))
                found.add(float(value))
            else:
                assert found.remove(float(value)) == (value in wanted)
                if value in wanted:
                    wanted.remove(value)
            _agree(found, wanted)
