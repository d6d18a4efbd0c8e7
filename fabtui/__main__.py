"""``python -m fabtui``."""

from __future__ import annotations

import sys

from fabtui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
