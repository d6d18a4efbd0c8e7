import pytest

from fabtui.lab.server import visible_gpus


@pytest.fixture(scope="session")
def gpus() -> list[str]:
    """The GPUs that may be used, an even number of them, eight at most."""
    found = visible_gpus()
    if len(found) < 2:
        pytest.skip("needs two NVIDIA GPUs")
    return found[: min(8, len(found) // 2 * 2)]
