"""Sweeps until a node that is 1 % slower is found, and false alarms.

Simulated at noise of recordings: the values of a sweep drift together, each has independent noise, and GPUs of a kind
differ a little for good. Prints the bars: found within 60 sweeps in 95 % of the cases, false alarms in at most 1 %.
"""

import argparse
import random

from fabtui.model.slower_node import PairedTest

SWEEPS = 60
#: Standard deviations of one value of a sweep, of recordings: the product, copies, p2p, and pairs over TCP.
NOISE = (0.002, 0.005, 0.01)
#: Constant differences between healthy GPUs (standard deviation).
OFFSET = 0.0005
#: Change of all from one sweep to the next.
DRIFT = 0.01
SIZES = (4, 8, 16, 64)


def found_after(rng: random.Random, size: int, noise: float, slow: float) -> tuple[int | None, bool]:
    """Return the sweeps until the slow one was found, if it was, and whether a healthy one was named."""
    test = PairedTest()
    offsets = {f"n{number:03d}": rng.gauss(0, OFFSET) for number in range(size)}
    offsets["n001"] -= slow
    level = 0.0
    for sweep in range(1, SWEEPS + 1):
        level += rng.gauss(0, DRIFT)
        # Now and then one is disturbed.
        values = {
            name: 300 * 2.718281828 ** (level + offset + rng.gauss(0, noise) - 0.05 * (rng.random() < 0.01))
            for name, offset in offsets.items()
        }
        test.add(values)
        names = [one.name for one in test.slower()]
        if names:
            wrong = any(name != "n001" or not slow for name in names)
            return (sweep if slow and "n001" in names else None), wrong
    return None, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    cases = parser.parse_args().cases
    rng = random.Random(51)
    kinds = [(size, noise) for size in SIZES for noise in NOISE]
    after, alarms, healthy_alarms = [], 0, 0
    for case in range(cases):
        size, noise = kinds[case % len(kinds)]
        sweeps, wrong = found_after(rng, size, noise, 0.01)
        after.append(sweeps)
        alarms += wrong
        healthy_alarms += found_after(rng, size, noise, 0.0)[1]
    there = sorted(sweeps for sweeps in after if sweeps is not None)
    share = len(there) / cases
    middle, late = (there[int(part * (len(there) - 1))] for part in (0.5, 0.95))
    print(f"1 % slower: found in {share:.1%} of {cases} cases within {SWEEPS} sweeps (bar 95 %)")
    print(f"sweeps until then: median {middle}, 95 % of those found {late}")
    print(f"healthy ones named: {alarms / cases:.2%} beside a slow one, {healthy_alarms / cases:.2%} alone (bar 1 %)")
    raise SystemExit(share < 0.95 or max(alarms, healthy_alarms) > 0.01 * cases)


if __name__ == "__main__":
    main()
