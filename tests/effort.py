"""Number of random inputs per test, by hypothesis profile.

``HYPOTHESIS_PROFILE`` chooses ``dev`` (10 examples per property), ``ci`` (20, the same each time) or ``nightly``
(1000); the default is ``ci`` under ``FABTUI_CI=1`` and ``dev`` elsewhere.
"""

import os

EXAMPLES = {"dev": 10, "ci": 20, "nightly": 1000}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("FABTUI_CI") == "1" else "dev")


def examples(factor: float = 1.0) -> int:
    """Return the number of random inputs of the current profile, times a factor."""
    return max(1, int(EXAMPLES[PROFILE] * factor))
