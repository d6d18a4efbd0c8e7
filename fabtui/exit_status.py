"""Exit codes of all commands. `fabtui.model.exit_codes` chooses that of a session."""

from __future__ import annotations

#: Everything that was asked for is well.
ALL_OK = 0
#: Something is wrong: a bad result, a finding, a job that hangs; also a text that ``explain`` does not know.
BAD = 1
#: Bad usage or input.
BAD_INPUT = 2
#: Nothing is known to be wrong, but something could not be tested, asked, read or recognised.
NOT_TESTED = 3
#: An error within fabtui.
CRASHED = 70
#: Interrupted by the user, who may also have answered no.
INTERRUPTED = 130
