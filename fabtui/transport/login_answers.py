"""Questions of servers at logins (passwords, one-time codes): one answer for all nodes where it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from fabtui.sanitize import clean, one_line

#: Deadline (s) of an answer: most servers close a login after 120 s.
ANSWER_DEADLINE = 110.0
#: Maximum number of answers that the user gives to one question of one node.
MOST_TRIES = 3

#: The user of the login, and the texts of the questions.
Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LoginQuestion:
    """The questions of a server at a login, for the user; their texts are fit for a terminal."""

    node: str
    user: str
    instruction: str
    prompts: tuple[tuple[str, bool], ...]  #: Each text, and whether the answer may be shown.
    refused: bool = False  #: Whether the node has refused the answer before.


#: Asks the user and returns an answer for each prompt, or None if there is none.
Ask = Callable[[LoginQuestion], Awaitable[Sequence[str] | None]]


class LoginAnswers:
    """The answers of a session, which are kept in memory alone.

    Logins with questions go one after the other until an answer has served twice. Then it serves all nodes. An answer
    that serves once, such as a one-time code, is not used again. After a refused answer, or none, no other node gets
    one, because servers count the failures of an account together.
    """

    def __init__(self, ask: Ask | None) -> None:
        self.ask = ask
        self.stopped = ""  #: Why nothing more is asked or answered, or "".
        self.kept: dict[Key, list[str]] = {}
        self.proven: set[Key] = set()
        self.single: set[Key] = set()  #: Questions whose answers serve once.
        self.lock = asyncio.Lock()

    def login(self, node: str, user: str) -> LoginTurn:
        return LoginTurn(self, node, user)


@dataclass(slots=True)
class LoginTurn:
    """The questions and answers of one login; `end` has to be called."""

    _all: LoginAnswers
    _node: str
    _user: str
    #: Called before the user is waited for, and after.
    waits: Callable[[bool], None] = lambda waiting: None
    _holds: bool = False
    _ended: bool = False
    _given: dict[Key, list[str]] = field(default_factory=dict)
    _reused: set[Key] = field(default_factory=set)
    _tries: dict[Key, int] = field(default_factory=dict)

    @property
    def may_answer(self) -> bool:
        """Return True if a question of the server has a chance to be answered."""
        return self._all.ask is not None and not self._all.stopped

    @property
    def asked(self) -> bool:
        return bool(self._tries)

    @property
    def reuse_failed(self) -> bool:
        """Return True if only answers of other nodes were given: another login may ask the user."""
        return bool(self._reused) and not self._given and not self._all.stopped

    def refusal(self) -> str:
        """Return why a refused login got no further, as far as it is about an answer."""
        if self._given or self._reused:
            return "it refused the answer"
        return f"no answer is sent: {self._all.stopped}" if self._all.stopped else ""

    async def answer(self, instruction: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        """Return the answers to the questions of the server, or None to give up."""
        if not prompts:
            return []
        key = (self._user, tuple(text for text, _ in prompts))
        self.waits(True)
        try:
            if not self._holds and key not in self._all.proven:
                await self._all.lock.acquire()
                if self._ended:
                    # The connection was closed meanwhile.
                    self._all.lock.release()
                    return None
                self._holds = True
            return await self._answer(key, instruction, prompts)
        finally:
            self.waits(False)

    async def _answer(self, key: Key, instruction: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        everyone = self._all
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if not self.may_answer:
            return None
        if key in self._reused:
            # The server asks again.
            everyone.single.add(key)
            everyone.proven.discard(key)
        elif key in everyone.kept and key not in everyone.single and tries == 1:
            self._reused.add(key)
            return everyone.kept[key]
        refused = key in self._given
        if tries > MOST_TRIES:
            everyone.stopped = f"{self._node} refused the answer"
            return None
        answers = await self._asked(instruction, prompts, refused)
        if answers is not None:
            self._given[key] = answers
        return answers

    async def _asked(self, instruction: str, prompts: Sequence[tuple[str, bool]], refused: bool) -> list[str] | None:
        assert self._all.ask is not None
        texts = tuple((one_line(text.strip(), 200), echo) for text, echo in prompts)
        question = LoginQuestion(self._node, self._user, clean(instruction, 1000).strip(), texts, refused)
        answers: Sequence[str] | None = None
        try:
            async with asyncio.timeout(ANSWER_DEADLINE):
                answers = await self._all.ask(question)
        except TimeoutError:
            self._all.stopped = f"the question of {self._node} was not answered within {ANSWER_DEADLINE:.0f} s"
        else:
            if answers is None:
                self._all.stopped = f"the question of {self._node} was not answered"
        return None if answers is None or len(answers) != len(prompts) else list(answers)

    def end(self, accepted: bool | None) -> None:
        """Note whether the node accepted the login; None: neither, as it ended for another reason."""
        everyone = self._all
        self._ended = True
        if accepted:
            everyone.kept.update(self._given)
            everyone.proven |= self._reused - everyone.single
        elif accepted is False and self._given and not everyone.stopped:
            everyone.stopped = f"{self._node} refused the answer"
        elif accepted is False:
            everyone.single |= self._reused
        if self._holds:
            self._holds = False
            everyone.lock.release()
