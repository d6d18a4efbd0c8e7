"""One lying node of three: what becomes of the cells of the two honest ones, and whether the liar is named.

    python bench/lying.py [--only MODE]...

The liar runs its true node side behind a proxy (tests/liar.py) that changes its messages or adds others: keys of tests
of others, results of others, repeated and shuffled messages, floods, values of wrong types. The nodes are those of a
lab, with two CPU ranks each. The exit code is 1 if a cell between honest nodes is bad or missing. It is also 1 if no
finding names a node that attacks the store.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import liar
from tests.labrun import run_lab

#: Deadline (s) of a test between ranks, and of a session.
DEADLINE, LONGEST = 10.0, 280.0


class Row(NamedTuple):
    """A mode, and what came of it."""

    mode: str
    honest: int  #: Cells between honest nodes that were measured.
    bad: int  #: Those that are neither ok nor slow: other work makes CPU ranks slow.
    own: int  #: Bad cells of the liar.
    named: str  #: The finding that names it.
    seconds: float


def measure(mode: str, folder: Path) -> Row:
    python = liar.interpreter(folder / "python3", mode)
    words = ["--remote-python", str(python), "--timeout", f"{DEADLINE:g}", "--json", str(folder / "s.json")]
    run = run_lab(folder, "3x2", *words, "--bytes", "64k", "--iters", "4", "--warmup", "1", limit=LONGEST)
    # A flood must not look like a standstill of the controller's machine either.
    if "Traceback" in run.printed or "this machine slept" in run.printed:
        raise SystemExit(f"{mode}: {run.printed}")
    honest = liar.of_others(run.rows)
    bad = [row for row in run.rows if row["verdict"] not in ("ok", "slow")]
    findings = json.loads((folder / "s.json").read_text())["findings"]
    named = [found["title"] for found in findings if liar.OWN[0] in json.dumps([found["title"], found.get("subjects")])]
    wrong = [row for row in bad if row in honest]
    for row in wrong[:5]:
        print(f"  {row['layer']} {row['src']} > {row['dst']} {row['verdict']}: {row['error'][:200]}")
    return Row(mode, len(honest), len(wrong), len(bad) - len(wrong), (named or [""])[0], run.seconds)


def main() -> int:
    """Run the modes; the exit code is 1 where a lie has an effect on honest nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(liar.MODES))
    args = parser.parse_args()
    print(f"{'mode':10} {'honest':>6} {'bad':>4} {'own bad':>7} {'s':>6}  the finding that names the liar")
    rows: list[Row] = []
    for mode in args.only or liar.MODES:
        with tempfile.TemporaryDirectory(prefix="fabtui-") as folder:
            rows.append(row := measure(mode, Path(folder)))
        print(f"{mode:10} {row.honest:6} {row.bad:4} {row.own:7} {row.seconds:6.1f}  {row.named}", flush=True)
    whole = max(row.honest for row in rows)
    silent = [row.mode for row in rows if row.mode in liar.ON_STORE and not row.named]
    return int(bool(silent) or any(row.bad or row.honest < whole for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
