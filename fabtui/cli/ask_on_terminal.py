"""Questions of servers at logins, on the terminal."""

from __future__ import annotations

import asyncio
import os
import termios

from fabtui.transport.login_answers import LoginQuestion

_MOST_BYTES = 4096
#: What `termios.tcgetattr` returns.
Attributes = list[int | list[bytes | int]]


async def ask_on_terminal(question: LoginQuestion) -> list[str] | None:
    """Return the answers that the user types; None without a terminal, or at its end (Ctrl+D)."""
    try:
        # Not standard input: that may be a file or a pipe.
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(terminal) != os.getpgrp():
            # In the background, the terminal would stop this process.
            return None
        before = termios.tcgetattr(terminal)
        again = " (the answer was refused)" if question.refused else ""
        os.write(terminal, f"{question.node} has a question for {question.user}{again}\n".encode())
        if question.instruction:
            os.write(terminal, f"{question.instruction}\n".encode())
        found = []
        for text, echo in question.prompts:
            line = await _line(terminal, before, f"{text} ", echo)
            if line is None:
                return None
            found.append(line)
        return found
    except (OSError, termios.error):
        return None
    finally:
        os.close(terminal)


async def _line(terminal: int, before: Attributes, prompt: str, echo: bool) -> str | None:
    """Return a line without its end; None at the end of the input."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(terminal, _MOST_BYTES))

    hidden = termios.tcgetattr(terminal)
    hidden[3] &= ~termios.ECHO
    if not echo:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
    try:
        os.write(terminal, prompt.encode())
        loop.add_reader(terminal, read)
        data = await typed
    finally:
        loop.remove_reader(terminal)
        if not echo:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            os.write(terminal, b"\n")
    return data.decode(errors="replace").rstrip("\r\n") if data else None
