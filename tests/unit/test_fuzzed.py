"""Inputs that the fuzzer found, and a short fuzzing of every target without its guidance: `tools/fuzz.py`."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "tests" / "samples" / "fuzzed"
sys.path.append(str(ROOT / "tools"))

from fuzz import problem  # noqa: E402
from fuzz_targets import TARGETS, close, mutate_json_lines, mutated_words  # noqa: E402

#: Changed inputs of a target; more of those that are most of what nodes, users and tools send.
CHANGED = {"recording": 300, "hosts": 30, "importers": 200, "parsers": 200}


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_that_was_found(path: Path) -> None:
    found = problem(TARGETS[path.parent.name], path.read_bytes())
    assert found is None, found[1]


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them changed, left out or doubled."""
    text = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, much = chance.randrange(len(text) + 1), chance.randint(1, 40)
        match chance.randrange(3):
            case 0:
                text[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del text[at : at + much]
            case _:
                text[at:at] = text[at : at + much]
    return bytes(text)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    seeds = list(target.seeds())
    for number in range(CHANGED.get(name, 15)):
        data, times = chance.choice(seeds), chance.choice((1, 1, 3, 8))
        if target.json_lines and number % 3:
            for _ in range(times):
                data = mutate_json_lines(data, chance)
        else:
            data = changed(data, chance)
        found = problem(target, data)
        assert found is None, f"{data!r}\n{found[1]}"


@pytest.mark.fuzz
def test_command_lines_with_changed_words_end_in_one_line() -> None:
    target, chance = TARGETS["words"], random.Random("words")
    seeds = list(target.seeds())
    for _ in range(300):
        data = mutated_words(chance.choice(seeds), chance)
        found = problem(target, data)
        assert found is None, f"{data!r}\n{found[1]}"
