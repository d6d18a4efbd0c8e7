"""Logs of a job over four nodes, as Megatron-LM, gpustat and Slurm print them, with invented values."""

from collections.abc import Mapping
from typing import Any

from fabtui.diagnosis.job.logs.job_logs import JobLogs
from fabtui.diagnosis.job.logs.report import JobFacts
from fabtui.scheduler.slurm import JobStatus

NODES = ("n060", "n061", "n062", "n063")
_SETTINGS = {
    "MASTER_ADDR": "192.0.2.60", "NNODES": "4", "WORLD_SIZE": "16", "GLOBAL_BATCH_SIZE": "64", "TENSOR_MP_SIZE": "1",
    "DP_SIZE": "4", "PIPELINE_MP_SIZE": "4", "PARTITION": "12-12-12-12", "MODEL": "xl", "NUM_LAYERS": "48",
}  # fmt: skip
ADDRESSES = {node: frozenset({f"192.0.2.{node[2:]}"}) for node in (*NODES, "n070")}


def settings(rank: int, **changed: str) -> str:
    values = {"NODE_RANK": str(rank), **_SETTINGS, **changed}
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def iteration(number: int, milliseconds: float, loss: str = "9.2E+00", nan: int = 0) -> str:
    return (
        f" iteration {number:8}/      50 | consumed samples:         1920 | elapsed time per iteration (ms): "
        f"{milliseconds} | learning rate: 7.031E-07 | global batch size:    64 | lm loss: {loss} | loss scale: 262144.0"
        f" | grad norm: 16.666 | number of skipped iterations:   0 | number of nan iterations:   {nan} |\n"
    )


def gpustat(node: str, seconds: int, *, busy: bool = True, dated: bool = True) -> str:
    """Return snapshots of four GPUs, one a second."""
    row = "| 61'C,  97 % | 14020 / 22731 MB | me(13980M)" if busy else "| 49'C,   0 % |     0 / 22731 MB |"
    gpus = "".join(f"[{number}] NVIDIA A10       {row}\n" for number in range(4))
    times = [f"{node}  Wed Jun 14 16:{at // 60:02}:{at % 60:02} 2023  470.57.02\n" for at in range(seconds)]
    return "".join((time if dated else "") + gpus for time in times)


def healthy(**changed: str) -> dict[str, str]:
    """Return the logs of a healthy job by file name; ``n061_err="..."`` replaces one."""
    files = {f"{node}.out": settings(rank) for rank, node in enumerate(NODES)}
    files["n063.out"] += "".join(iteration(*one) for one in ((10, 4541.6), (20, 1401.5), (30, 1423.8), (40, 1373.9)))
    files |= {f"{node}.err": "x.py:1: UserWarning: an error was ignored\n  warnings.warn(\n" for node in NODES}
    files |= {f"{node}.gpu": gpustat(node, 40) for node in NODES}
    return files | {name.replace("_", "."): text for name, text in changed.items()}


def part(path: str, text: str, start: int = 0, modified: float = 1000.0, **more: Any) -> dict[str, Any]:
    end = start + len(text.encode())
    return {
        "path": path,
        "inode": 1,
        "size": end,
        "modified": modified,
        "start": start,
        "end": end,
        "text": text,
        **more,
    }


def logs_of(files: Mapping[str, str], now: float = 1001.0) -> JobLogs:
    logs = JobLogs(NODES)
    logs.take("", [part(f"/logs/{name}", text) for name, text in files.items()], now)
    return logs


def facts_of(files: Mapping[str, str], state: str = "RUNNING", **more: Any) -> JobFacts:
    status = JobStatus("12", state, nodes=NODES, elapsed=more.pop("elapsed", 3600.0), ended=more.pop("ended", None))
    return JobFacts(status, logs_of(files), addresses=ADDRESSES, when=1001.0, **more)
