"""Report of a large synthetic fabric: time to write it, size, and time until a browser shows it, against bars.

    python bench/pages.py [NODES]

The time to open is Chromium's with the page less its time with an empty one, the best of three each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from synthetic import write

BAR_BYTES = 3_000_000
BAR_OPEN = 2.0
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def seconds(argv: list[str], rounds: int = 1) -> float:
    """Return the wall time of a process, the best of some rounds."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> int:
    """Print the figures; return 1 if a bar is missed."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with tempfile.TemporaryDirectory() as folder:
        recording, page = Path(folder) / "fabric.jsonl.gz", Path(folder) / "fabric.html"
        write(recording, nodes)
        written = seconds([sys.executable, "-m", "fabtui", "report", str(recording), "-o", str(page)])
        size = page.stat().st_size
        print(f"{nodes} nodes: written in {written:.1f} s, {size / 1e3:.0f} kB (bar {BAR_BYTES / 1e3:.0f})")
        if browser is None:
            print("no browser: the time to open is not measured")
            return int(size > BAR_BYTES)
        argv = [browser, "--headless", "--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else []), "--dump-dom"]
        opened = seconds([*argv, page.as_uri()], 3) - seconds([*argv, "about:blank"], 3)
        print(f"opened in {opened:.2f} s (bar {BAR_OPEN:.0f})")
        return int(size > BAR_BYTES or opened > BAR_OPEN)


if __name__ == "__main__":
    sys.exit(main())
