"""Run the faults of a job on this machine, and print which rank and cause `fabtui` names; not a test.

    python3 -m tests.device.job_faults                 ranks on the first GPU, by NCCL; without one on CPUs, by Gloo
    python3 -m tests.device.job_faults --only STOP,lock --again
    python3 -m tests.device.job_faults --network 3     faults of the network of three nodes of a lab, three times each
    python3 -m tests.device.job_faults --healthy 600   a training without a fault, watched for that time (s)

What has been tried is kept in ``--state`` (build/job_faults.json), and a further call continues there: each ends before
``--limit`` (s). The exit code is 0 if all cases are right, 1 if some are wrong, 3 if some are left.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fabtui.lab.network import Network, missing

PROGRAM = Path(__file__).parents[1] / "lab" / "faulty_training.py"
RANKS = 4
#: Time (s) from a fault to the questions, and time that a case takes at most.
_AFTER, _CASE = 8.0, 75.0
#: Expected first line of each behaviour; of `hang` and `run`.
BEHAVIOURS = {
    "STOP": r"hanging.* rank 1 .*is stopped",
    "lock": r"hanging.* rank 1 ",
    "loop": r"hanging.* rank 1 ",
    "fifo": r"hanging.* rank 1 ",
    "evaluation": r"hanging.* rank 1 .*(load_batch|evaluate|sleep)",
    "memory": r"hanging.* rank 1 .*(memory|catch_out_of_memory|sleep)",
    "exception": r"hanging.* rank 1 ",
    "KILL": r"hanging.* rank 1 .*has ended",
    "child": r"hanging.* rank 1 ",
    "kernel": r"(hanging|paused).* rank 1 ",
    "late 0.05": r"slow.* rank 1 ",
    "late 0.4": r"slow.* rank 1 ",
    "collective": r"different collective|hanging",
    "two": r"hanging.* rank 1 .*is stopped.*also, ",
    "leftover": r"is making progress.*a process of an earlier job is left",
    "workers": r"hanging.* rank 1 ",
}
#: The same of faults of the network of three nodes.
NETWORK = {
    "n1.eth0=pull": r"n1 eth0.*no carrier",
    "n0>n1=drop": r"n0 > n1",
    "n1>n0=drop": r"n1 > n0",
    "n1.eth0=loss-out:5%": r"n1",
    "n1.eth0=slow-in:2MB": r"n1",
    "n1.eth0=slow-out:2MB": r"n1",
    "n0>n1=blackhole:1500": r"n0 > n1",
    "n1=firewall": r"n1",
    "STOP": r"rank 1 on n1:1 is stopped",
    "n1=down": r"n1",
}


class Job:
    """Ranks on this machine."""

    def __init__(self, folder: Path, port: int, words: Sequence[str], ranks: int = RANKS) -> None:
        folder.mkdir()
        os.mkfifo(folder / "fifo")
        self.folder, self.log, self.processes = folder, folder / "rank0.log", list[subprocess.Popen[bytes]]()
        shared = {
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        # To NCCL, ranks of one GPU are on different hosts.
        shared |= {
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1",
            "NCCL_NVLS_ENABLE": "0",
        }
        shared |= {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "NCCL_MAX_NCHANNELS": "2", "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(ranks):
            with (folder / f"rank{rank}.log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, str(PROGRAM), str(folder), *words],
                        env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )

    def works(self) -> bool:
        until = time.monotonic() + 60
        while self.log.read_text().count("iteration ") < 4:
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
        return True

    def plant(self, fault: str) -> None:
        if fault in ("STOP", "KILL", "two"):
            self.processes[1].send_signal(signal.SIGKILL if fault == "KILL" else signal.SIGSTOP)
        else:
            (self.folder / "new").write_text(fault)
            (self.folder / "new").rename(self.folder / "fault")

    def end(self) -> None:
        for process in self.processes:
            # With its children.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@contextmanager
def job(fault: str, engine: Sequence[str], folder: Path) -> Iterator[Job]:
    """Yield a job in which a fault is planted."""
    port = 29600 + os.getpid() % 300
    jobs = [
        Job(
            folder / "job",
            port,
            [*engine, *(["workers"] if fault == "workers" else [])],
            3 if fault == "two" else RANKS,
        )
    ]
    jobs += [Job(folder / "other", port + 1000, engine, 2)] if fault == "two" else []
    left = None
    try:
        if not all(one.works() for one in jobs):
            raise RuntimeError(f"the job does not start: {jobs[0].log.read_text()[-300:]}")
        if fault == "leftover":
            environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
            code = "import time\nwhile time.process_time() < 1.5: pass\ntime.sleep(900)"
            left = subprocess.Popen([sys.executable, "-c", code], env=environ)
        else:
            jobs[0].plant(fault)
        time.sleep(_AFTER)
        yield jobs[0]
    finally:
        for one in jobs:
            one.end()
        if left is not None:
            left.kill()
            left.wait(10)


def asked(command: str, words: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return exit code, time and first line of a command of fabtui."""
    argv = [sys.executable, "-m", "fabtui", command, *words]
    began = time.monotonic()
    environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environ)
    except subprocess.TimeoutExpired:
        return {"code": None, "seconds": 120.0, "line": "it did not end"}
    line = (done.stdout.splitlines() or [done.stderr[-300:]])[0]
    return {
        "code": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "line": line,
        "text": done.stdout[:4000],
    }


def behaviour(fault: str, engine: Sequence[str]) -> dict[str, Any]:
    words = ["--transport", "local", "--nodes", "localhost"]
    with tempfile.TemporaryDirectory() as name, job(fault, engine, Path(name)), ThreadPoolExecutor(2) as pool:
        # Only GPUs that a job uses are observed by `run`.
        commands = ("hang", "run") if engine else ("hang",)
        answers = {command: pool.submit(asked, command, words, Path(name)) for command in commands}
        return {command: answer.result() for command, answer in answers.items()}


def network_fault(fault: str, engine: Sequence[str]) -> dict[str, Any]:
    from tests.lab.test_faults_of_jobs import Training

    with tempfile.TemporaryDirectory() as name, Network(Path(name), nodes=3, rails=1) as network:
        training = Training(network, Path(name) / "job", words=engine)
        try:
            training.works()
            training.plant(fault)
            time.sleep(_AFTER)
            words = ["--nodes", "n[0-2]", "--ssh-config", str(network.ssh_config)]
            return {"hang": asked("hang", words, Path(name))}
        finally:
            training.end()


def healthy(seconds: float, engine: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, job("nothing", engine, Path(name)) as one:
        argv = [sys.executable, "-m", "fabtui", "hang", "--wait", "--transport", "local", "--nodes", "localhost"]
        log = Path(name) / "wait.txt"
        with log.open("wb") as file:
            waiting = subprocess.Popen(argv, stdout=file, stderr=file)
        until = time.monotonic() + seconds
        while time.monotonic() < until and waiting.poll() is None:
            time.sleep(1)
            if int(time.time()) % 60 == 0:
                # A checkpoint of each minute.
                one.plant("late 0.4")
                time.sleep(2)
                (one.folder / "fault").unlink()
        reported = waiting.poll() == 1
        waiting.send_signal(signal.SIGINT)
        waiting.wait(30)
        return {"wait": {"code": int(reported), "seconds": seconds, "line": log.read_text().splitlines()[-1][:300]}}


def table(cases: dict[str, dict[str, Any]], expected: dict[str, str]) -> int:
    """Print a line for each answer; return the number of wrong ones."""
    wrong = 0
    for name, answers in cases.items():
        pattern = expected.get(name.partition(" #")[0])
        for command, answer in answers.items():
            right = answer["code"] == 0 if pattern is None else re.search(pattern, answer["line"]) is not None
            wrong += not right
            figures = f"{'right' if right else 'WRONG':5}  {name:24}  {command:4}  {answer['code']}"
            print(f"{figures}  {answer['seconds']:5} s  {answer['line'][:200]}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--network", type=int, default=0, metavar="RUNS")
    parser.add_argument("--healthy", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--gloo", action="store_true", help="ranks on CPUs")
    parser.add_argument("--state", type=Path, default=Path("build/job_faults.json"))
    parser.add_argument("--again", action="store_true", help="forget what has been tried")
    parser.add_argument("--limit", type=float, default=570.0)
    args = parser.parse_args()
    began, engine = time.monotonic(), [] if args.gloo or not Path("/dev/nvidia0").exists() else ["nccl"]
    cases: dict[str, dict[str, Any]] = {}
    if args.state.exists() and not args.again:
        cases = json.loads(args.state.read_text())
    if args.network and (why := missing()):
        print(f"no network: {why}")
        return 3
    expected = NETWORK if args.network else BEHAVIOURS
    wanted = [f"{one} #{run}" for run in range(args.network) for one in NETWORK] or [*BEHAVIOURS]
    wanted = [f"healthy {args.healthy:.0f} s"] if args.healthy else wanted
    wanted = [one for one in wanted if not args.only or one.partition(" #")[0] in args.only]
    left = []
    for name in wanted:
        if name in cases:
            continue
        if time.monotonic() - began + max(_CASE, args.healthy) > args.limit and name != wanted[0]:
            left.append(name)
            continue
        fault = name.partition(" #")[0]
        try:
            cases[name] = (
                healthy(args.healthy, engine)
                if args.healthy
                else network_fault(fault, engine)
                if args.network
                else behaviour(fault, engine)
            )
        except (AssertionError, OSError, RuntimeError) as error:
            cases[name] = {"": {"code": None, "seconds": 0.0, "line": f"{type(error).__name__}: {error}"[:300]}}
        args.state.parent.mkdir(parents=True, exist_ok=True)
        args.state.write_text(json.dumps(cases, indent=1))
        table({name: cases[name]}, expected)
    print()
    wrong = table({name: cases[name] for name in wanted if name in cases}, expected)
    print(f"{len(wanted) - len(left)} of {len(wanted)} cases, {wrong} wrong; {time.monotonic() - began:.0f} s")
    return 3 if left else int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
