"""Probes and a rank host for tests: they echo, print, hang, die, and leave hostile processes behind."""

from typing import Any

from fabtui_node.runtime import processes
from tests.wire.nodeside import NodeSide, living, wait_until

REGISTRY = """
import os, signal, subprocess, sys, time
class Probe:
    def __init__(self, run): self.run = run
def echo(args, emit, deadline):
    for number in range(args.get("parts", 0)):
        emit({"part": number})
    return {"args": args, "deadline": deadline}
def fails(args, emit, deadline):
    raise ValueError("no such port")
def stuck(args, emit, deadline):
    while True: time.sleep(60)
def dies(args, emit, deadline):
    os.kill(os.getpid(), signal.SIGKILL)
def leaves(args, emit, deadline):
    child = subprocess.Popen([sys.executable, "-c", "import os,time; os.setsid(); time.sleep(600)"])
    return {"pid": child.pid, "worker": os.getpid()}
def prints(args, emit, deadline):
    for number in range(args["lines"]):
        print("line", number)
    print("x" * 100000)
    sys.stdout.flush()
    os.write(1, b"\\xff\\x1b[2J odd bytes\\n")
    return {}
def reads(args, emit, deadline):
    return {"stdin": sys.stdin.read(), "fd": os.readlink("/proc/self/fd/0")}
def odd(args, emit, deadline):
    return {"value": float("nan")}
def big(args, emit, deadline):
    return {"value": "x" * 5000000}
PROBES = {name: Probe(globals()[name]) for name in "echo fails stuck dies leaves prints reads odd big".split()}
"""

# Echoes its input; some words have an effect first.
RANKHOST = """
import os, signal, socket, struct, subprocess, sys, time
from fabtui_node.protocol import Decoder, encode
NASTY = '''
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
time.sleep(600)
'''
def nasty(clean):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    token = os.environ["FABTUI_TEST_TOKEN"]
    if os.fork() == 0:
        while True: time.sleep(60)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", NASTY, token], {} if clean else os.environ)
        os._exit(0)
    os.wait()
def main(config):
    end = socket.socket(fileno=config["fd"])
    print("rank host starts", flush=True)
    def send(message): end.sendall(encode(message))
    send({"op": "started", "config": config, "stdin": os.readlink("/proc/self/fd/0"), "blocking": end.getblocking(),
          "variable": os.environ.get("NCCL_TEST"), "sid": os.getsid(0), "path": [p for p in sys.path if not p]})
    decoder = Decoder()
    while True:
        data = end.recv(65536)
        if not data: return
        for message in decoder.feed(data):
            op = message.get("op")
            if op == "quit": sys.exit(message.get("code", 0))
            if op == "crash":
                print("e" * 5000 + "the last words", file=sys.stderr)
                raise RuntimeError("engine broke")
            if op == "nasty": nasty(message.get("clean", False))
            if op == "garbage": end.sendall(b"\\xff\\xff\\xff\\xff garbage")
            if op == "flood":
                for _ in range(message["count"]): send({"op": "flood", "fill": "x" * 10000})
            if op == "deaf":
                while True: time.sleep(60)
            if op == "chatty":
                while True: print("chatter " * 20)
            send(dict(message, echoed=True))
"""

EXTRA = {"fabtui_node.registry": REGISTRY, "fabtui_node.ranks.rank_host": RANKHOST}


def probe(number: int, name: str, deadline: float = 10.0, **args: Any) -> dict[str, Any]:
    return {"t": "probe", "id": number, "name": name, "args": args, "deadline": deadline}


def spawn_rank_host(node: NodeSide, **fields: Any) -> dict[str, Any]:
    node.send({"t": "spawn", "argv": None, "env": {}, "config": {}, **fields})
    spawned, _ = node.expect_spawned()
    return spawned


def keeper_of(pid: int) -> int:
    (child,) = (found for found, (parent, _) in processes.process_table().items() if parent == pid)
    return child


def nasty_everywhere(clean: bool = False, extra: dict[str, str] | None = None, **config: Any) -> NodeSide:
    """A node side with a hostile rank host, a stuck probe and a daemonised process of the worker."""
    node = NodeSide({**EXTRA, **(extra or {})}, **config)
    node.listen()
    node.expect("hello")
    spawn_rank_host(node)
    node.send({"t": "rank", "m": {"op": "nasty", "clean": clean}})
    node.expect("rank")
    node.send(probe(1, "leaves"))
    node.expect("result")
    node.send(probe(2, "stuck", 3000))
    # A, B, worker, rank host, two of its children, one of the worker's.
    wait_until(lambda: len(living(node.token)) == 7, 5, "not all hostile processes came up")
    return node
