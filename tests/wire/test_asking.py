"""Servers that ask for a password or a one-time code: who is asked, how often, and what the others get."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabtui.transport.connector import Connector, ConnectorOptions
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.login_answers import Ask, LoginQuestion
from tests.wire import fakeside
from tests.wire.asking import USER, Asking, asking_servers

NODES = ("n1", "n2", "n3", "n4")


class User:
    """Answers from a list, then with nothing."""

    def __init__(self, *answers: str) -> None:
        self.questions: list[LoginQuestion] = []
        self._answers = list(answers)

    async def ask(self, question: LoginQuestion) -> Sequence[str] | None:
        self.questions.append(question)
        # As slow as a person, for a program.
        await asyncio.sleep(0.05)
        return [self._answers.pop(0)] if self._answers else None


async def reached(asking: Asking, ask: Ask | None) -> dict[str, str]:
    """Return the reason why each node was not reached, "" for those that were."""
    found: dict[str, str] = {}

    async def one(node: str) -> None:
        try:
            link = await connector.open(node)
            await link.close()
            found[node] = ""
        except NodeUnreachable as error:
            found[node] = f"{error.kind}: {error.text}"

    options = ConnectorOptions(ssh_config=asking.config, **fakeside.options())
    async with Connector(options, lambda text: None, ask) as connector:
        await asyncio.gather(*map(one, NODES))
    return found


@pytest.mark.parametrize("password_only", [False, True])
async def test_one_answer_serves_all_nodes(tmp_path: Path, password_only: bool) -> None:
    user = User("open sesame")
    asking = Asking(lambda answer: answer == "open sesame", password_only=password_only)
    async with asking_servers(tmp_path, NODES, asking):
        assert await reached(asking, user.ask) == dict.fromkeys(NODES, "")
    assert len(user.questions) == 1
    (question,) = user.questions
    assert (question.user, question.prompts, question.refused) == (USER, (("Password:", False),), False)
    assert "\x1b" not in question.instruction
    assert sorted(node for node, _ in asking.answers) == sorted(NODES)


async def test_a_refused_answer_reaches_no_other_node(tmp_path: Path) -> None:
    user = User("wrong", "wrong as well", "and again", "and more")
    asking = Asking(lambda answer: False)
    async with asking_servers(tmp_path, NODES, asking):
        found = await reached(asking, user.ask)
    assert all(text.startswith("auth: ") for text in found.values())
    assert len({node for node, _ in asking.answers}) == 1
    assert [question.refused for question in user.questions] == [False, True, True]
    assert sum("no answer is sent: n" in text for text in found.values()) == len(NODES) - 1, found


async def test_no_answer_is_asked_for_once(tmp_path: Path) -> None:
    user = User()
    asking = Asking(lambda answer: True)
    async with asking_servers(tmp_path, NODES, asking):
        found = await reached(asking, user.ask)
    assert all(text.startswith("auth: ") for text in found.values())
    assert len(user.questions) == 1
    assert not asking.answers


async def test_a_one_time_code_is_sent_to_one_more_node_at_most(tmp_path: Path) -> None:
    left = {"111111", "222222", "333333", "444444"}

    def right(answer: str) -> bool:
        if answer not in left:
            return False
        left.discard(answer)
        return True

    user = User(*sorted(left))
    asking = Asking(right, prompt="Verification code: ")
    async with asking_servers(tmp_path, NODES, asking):
        assert await reached(asking, user.ask) == dict.fromkeys(NODES, "")
    assert len(user.questions) == len(NODES)
    # The first code once more, to learn that it serves once.
    assert len(asking.answers) == len(NODES) + 1


@pytest.mark.parametrize("batch", [False, True])
async def test_without_somebody_to_ask_nothing_is_answered(tmp_path: Path, batch: bool) -> None:
    user = User("open sesame")
    asking = Asking(lambda answer: True)
    async with asking_servers(tmp_path, NODES, asking):
        if batch:
            asking.config.write_text(asking.config.read_text() + "  BatchMode yes\n")
        found = await reached(asking, user.ask if batch else None)
    assert not user.questions
    assert all(text.startswith("auth: ") for text in found.values())
    assert not asking.answers
