"""Search by halves among simulated nodes: how often it names the right ones, and after how many rounds.

    python bench/bisection.py [--nodes 1024] [--seeds 200] [--noise 0.05]

A group is bad if it has a culprit, or both nodes of a pair that is bad only together. Where all are bad only together,
it has more than half of the nodes. A test is wrong with the probability of the noise. No node is asked.
"""

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held

from fabtui.session.measure.halving import Halving, Undecided

#: Share of seeds with the right answer.
BAR_RIGHT = 0.95


class Case(NamedTuple):
    """Number of planted nodes that are bad alone, and of pairs that are bad together; or all are."""

    name: str
    alone: int = 0
    pairs: int = 0
    whole: bool = False


CASES = (
    Case("healthy"),
    Case("1 culprit", alone=1),
    Case("2 culprits", alone=2),
    Case("3 culprits", alone=3),
    Case("a pair, bad together", pairs=1),
    Case("2 such pairs", pairs=2),
    Case("a culprit and such a pair", alone=1, pairs=1),
    Case("all together", whole=True),
)


class Answer(NamedTuple):
    """Outcome of one search."""

    right: bool
    rounds: int
    text: str


def searched(case: Case, nodes: int, noise: float, seed: int) -> Answer:
    """Plant a case, search it, and return whether exactly that was found."""
    chance = random.Random(seed)
    drawn = chance.sample(range(nodes), case.alone + 2 * case.pairs)
    alone = set(drawn[: case.alone])
    rest = drawn[case.alone :]
    pairs = [frozenset(rest[at : at + 2]) for at in range(0, len(rest), 2)]

    def is_bad(units: tuple[int, ...]) -> bool:
        group = set(units)
        bad = not alone.isdisjoint(group) or any(pair <= group for pair in pairs)
        bad = bad or (case.whole and len(group) > nodes // 2)
        return bad is not (chance.random() < noise)

    halving = Halving(nodes, seed)
    steps = halving.search()
    try:
        trials = next(steps)
        while True:
            units = [unit for trial in trials for unit in trial.units]
            assert len(units) == len(set(units)), "two groups of a round share a node"
            trials = steps.send([is_bad(trial.units) for trial in trials])
    except StopIteration:
        pass
    except Undecided:
        return Answer(False, halving.rounds, "undecided")
    names = {frozenset(one.units) for one in halving.culprits if not one.whole}
    whole = any(one.whole for one in halving.culprits)
    right = names == {*(frozenset({one}) for one in alone), *pairs} and whole is case.whole and not halving.rest_bad
    found = [sorted(one) for one in names] + (["all"] if whole else [])
    return Answer(right, halving.rounds, f"{found} for {sorted(alone)} and {[sorted(pair) for pair in pairs]}")


def show(case: Case, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Run the seeds of a case, and print a row with its bars."""
    seeds = options.seeds // 2 if case.name == "healthy" else options.seeds
    began = time.process_time()
    answers = [searched(case, options.nodes, options.noise, seed) for seed in range(seeds)]
    right = sum(one.right for one in answers)
    rounds = sorted(one.rounds for one in answers)
    bar = 1.0 if case.name == "healthy" else BAR_RIGHT
    say(
        f"{case.name:26} right {right:3d} of {seeds} (bar {bar * 100:.0f} % {held(right / seeds, bar, least=True)}); "
        f"rounds: median {statistics.median(rounds):.0f}, 95 % {rounds[int(0.95 * (seeds - 1))]}, most {rounds[-1]}; "
        f"{(time.process_time() - began) / seeds * 1e3:.0f} ms CPU each"
    )
    if case.name == "1 culprit":
        most = 2 * math.log2(options.nodes) + 3
        within = sum(one.rounds <= most for one in answers)
        kept = held(within / seeds, BAR_RIGHT, least=True)
        say(f"{'':26} {within} of {seeds} in at most 2 log2 n + 3 = {most:.0f} rounds ({kept})")
    for seed, one in enumerate(answers):
        if options.wrong and not one.right:
            say(f"  seed {seed}: {one.text}, {one.rounds} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.05, help="probability that a test is wrong")
    parser.add_argument("--wrong", action="store_true", help="list the seeds with a wrong answer")
    options = parser.parse_args()
    print(f"{options.nodes} simulated nodes, noise {options.noise * 100:.0f} %")
    for case in CASES:
        show(case, options, print)


if __name__ == "__main__":
    main()
