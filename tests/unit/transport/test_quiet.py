"""No output beside the summary and over the screen."""

import logging

import pytest

import fabtui.transport.byte_pipe  # noqa: F401 - brings the filter


def test_asyncio_does_not_say_that_a_process_was_reaped_by_somebody_else(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("asyncio")
    log.warning("Unknown child process pid %d, will report returncode 255", 17)
    log.warning("child process pid %d exit status already read:  will report returncode 255", 17)
    log.warning("something else of pid %d", 17)
    assert [record.getMessage() for record in caplog.records] == ["something else of pid 17"]
