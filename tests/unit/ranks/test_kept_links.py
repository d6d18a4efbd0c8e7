"""Links that are kept between tests; in rank hosts with gloo: tests/wire/test_rankhost_gloo.py."""

from typing import Any

from fabtui_node.ranks.engine import KeptLinks, PairLink

TASK: Any = None


class Recorded(PairLink):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def renew(self, task: Any) -> None:
        self.calls.append("renew")

    def close(self, broken: bool) -> None:
        self.calls.append("abort" if broken else "close")


def test_a_link_is_in_one_place_only() -> None:
    kept, first, second, third = KeptLinks(), Recorded(), Recorded(), Recorded()
    kept.put((1, 16), "a", first)
    kept.put((1, 0), "b", second)
    assert [kept.name(key) for key in ((1, 16), (1, 0), (2, 0))] == ["a", "b", None]
    assert kept.take((1, 16), TASK) is first
    assert kept.name((1, 16)) is None
    kept.put((1, 0), "c", third)
    kept.close((7, 0), broken=True)
    kept.clear()
    assert len(kept) == 0
    assert [one.calls for one in (first, second, third)] == [["pause", "renew"], ["pause", "abort"], ["pause", "close"]]
