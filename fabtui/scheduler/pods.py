"""Pods of Kubernetes as nodes, from ``kubectl get pods``."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from fabtui.errors import InputError
from fabtui.nodeset import check_name
from fabtui.scheduler.allocation import Allocation
from fabtui.scheduler.tool import ask

_PATH = "jsonpath={range .items[*]}{.metadata.name}|{.status.phase}|{.spec.nodeName}{'\\n'}{end}"


class Pods(NamedTuple):
    """Pods that run, and the command line that reaches each."""

    allocation: Allocation
    via: str


def pods(text: str, option: str) -> Pods:
    """Return the running pods of ``NAMESPACE/SELECTOR``.

    Raises:
        InputError: There are none, or kubectl failed.
    """
    namespace, slash, selector = text.partition("/")
    if not slash or not selector or not namespace:
        hint = "expected NAMESPACE/SELECTOR, such as train/training.kubeflow.org/job-name=llm"
        raise InputError(f"{option}: {text[:80]!r}; {hint}")
    words = ["kubectl", "get", "pods", f"--namespace={namespace}", f"--selector={selector}", f"--output={_PATH}"]
    answer = ask(words)
    if answer.problem:
        raise InputError(f"{option}: kubectl does not list the pods: {answer.problem}")
    rows = [line.split("|") for line in answer.lines if line.count("|") == 2]
    running = [(name, host) for name, phase, host in rows if phase == "Running"]
    if not running:
        waiting = ", ".join(f"{name} is {phase}" for name, phase, _ in rows[:3])
        raise InputError(f"{option}: no pod runs in {namespace} with {selector}" + (f" ({waiting})" if waiting else ""))
    names = tuple(check_name(name, option) for name, _ in running)
    hosts = ", ".join(f"{name} on {host}" for name, host in running[:4]) + (", ..." if len(running) > 4 else "")
    allocation = Allocation(f"pods {text}", names, f"kubectl; {hosts}")
    return Pods(allocation, f"kubectl exec -i --namespace={shlex.quote(namespace)} {{node}} --")
