"""Kinds of lines in any program's words: the innermost reason, values before stages, versions, parts and addresses."""

import re
from pathlib import Path

import pytest

from .test_cases import Out, answer

TRACEBACK = """\
(Worker_TP1 pid=91) ERROR 11-07 11:03:31 [executor.py:585]   File "/venv/vllm/worker.py", line 96, in __init__
(Worker_TP1 pid=91) ERROR 11-07 11:03:31 [executor.py:585]     port = self.cfg.peer_ports[self.rank]
(Worker_TP1 pid=91) ERROR 11-07 11:03:31 [executor.py:585]            ~~~~~~~~~~~~~~~~~~~^^^^^^^^^^^
(Worker_TP1 pid=91) ERROR 11-07 11:03:31 [executor.py:585] IndexError: list index out of range
"""
WRAPPED = """\
[sglang] transfer error for room 7
Traceback (most recent call last):
  File "/venv/sglang/conn.py", line 7, in send
    raise RuntimeError(
RuntimeError: staging does not support different block sizes: 16 != 64
"""
CHAIN = """\
ERROR dynamo_runtime: Failed to connect to the store, error: config { url: "http://n061:4222", lease: true }

Caused by:
    0: creating client
    1: grpc error: Connection refused (os error 111)
"""
CONTAINER = (
    "docker: Error response from daemon: failed to create task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: error running hook: exit status 1, stderr: "
    "nvidia-container-cli: initialization error: {}: unknown.\n"
)
GLOO = """\
terminate called after throwing an instance of 'gloo::IoException'
  what():  [/src/gloo/transport/tcp/pair.cc:724] connect [127.0.0.1]:3210: Connection refused
Aborted (core dumped)
"""
UCX = "[1716920651.160128] [gpu1:25924:0]  tcp_ep.c:259  UCX  {}\n"
SEGMENTS = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True vllm serve m\n"
IPC = "vllm: CUDA error: cudaIpcGetMemHandle failed: invalid argument\n"
LAUNCH = "NCCL version 2.25.1+cuda12.8\nn1:7:9 [1] enqueue.cc:1500 NCCL WARN Cuda failure 1 'invalid argument'\n"
DEVX = "nvshmem ibgda.cpp:1345: non-zero status: 121 Error in mlx5dv_devx_obj_modify for INIT2RTR_QP with syndrome 29\n"
LINK_LOCAL = "rdma.cpp:125] mlx5_0, GID: (GID_Index 1) fe:80:00:00:00:00:00:00:9e:63:c0:ff:fe:65:ab:90\n"

#: A text, and patterns that its answer begins with (one paragraph) and never has.
ROWS = (
    (TRACEBACK, r"E398.*IndexError.*the setting peer_ports has no entry", r"line +\S+:3"),
    (WRAPPED, r"E258.*16 != 64", "room 7"),
    (CHAIN, r"E253 .*error: Connection refused.*connects to: n061:4222", "rank 1"),
    (CONTAINER.format("nvml error: driver not loaded"), "E45.*reason +nvml error: driver not loaded", "E101"),
    (
        CONTAINER.replace("initialization error: {}", 'exec: "vllm": executable file not found'),
        "E256.*not there: vllm",
        "E101",
    ),
    ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4\n", "E245", "E101"),
    ("nixl: WARNING version 0.4.0 found, but 0.6.1 is required\n", "E245.*0.4.0 is loaded, and 0.6.1 is required", ""),
    ("vllm Error: failed to read\n\nCaused by:\n    No such file (os error 2)\n", "E256.*failed to read: No such", ""),
    (CONTAINER.format("something odd"), "E101.*reason +initialization error: something odd", "E45"),
    (GLOO, r"E103.*what\(\)", "unknown to fabtui"),
    ("vllm gloo\n" + GLOO.replace("connect [127.0.0.1]:3210: Connection refused", "odd"), "what", "Aborted"),
    (SEGMENTS + IPC, "E393.*expandable_segments", "Xid|cause is not in this text"),
    (
        IPC.replace("cudaIpcGetMemHandle failed:", "all_reduce.cuh:45"),
        "CUDA error 1 .*not a fault of the hardware",
        "Xid",
    ),
    (LAUNCH, r"E394.*by NCCL 2\.25\.1", "Compare the arguments"),
    (DEVX, "E391.*NVSHMEM_IB_GID_INDEX", "peermem"),
    (LINK_LOCAL + DEVX, "E392.*the GID 1, a link-local one", "peermem"),
    (
        UCX.format("WARN  UCP version is incompatible, required: 1.18, actual: 1.12"),
        "E245.*1.12 is loaded, and 1.18",
        "",
    ),
    (
        "vllm WARNING: loaded libfoo 2.1.0, requires 2.3.0 or newer\n",
        "E245.*2.1.0 is loaded, and 2.3.0 is required",
        "",
    ),
    ("nixl: E0421 agent.cpp:322] createBackend: unsupported backend 'GDS'\n", "E397.*the part GDS was not", "E258"),
    ("libfabric: ERROR: provider efa could not be loaded\n", "E397.*the part efa was not loaded", "E258"),
    ("NCCL ERROR transport 'ib9' not found\n", "E397.*the part ib9", "E258"),
    (UCX.format("INFO  ep_cfg[4]: tag(tcp/ib0 tcp/docker0)"), "note: E396.*takes docker0", "nothing known"),
    ("vllm: RuntimeError: connect to 172.17.0.1:29500: Connection refused\n", r"E396.*172\.17\.0\.1.*docker0", ""),
    ("ray start: ERROR Failed to connect to GCS at address :6379\n", "E399.*:6379 has a port and no host", ""),
    ("vllm ValueError: cannot parse tcp://:29500\n", "E399.*:29500", ""),
    ("vllm: RuntimeError: node 2 has a duplicate IP address 10.0.0.5\n", "E395.*VLLM_HOST_IP", "binds to"),
)


@pytest.mark.parametrize(("given", "first", "never"), ROWS)
def test_the_kind_is_named(given: str, first: str, never: str, capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(given)
    _, text = answer(capsys, "explain", str(tmp_path / "a.txt"))
    assert re.search(first, " ".join(text.partition("\n\n")[0].split())), text
    assert not never or not re.search(never, text), text


@pytest.mark.parametrize(
    "given", [UCX.format("WARN  odd"), GLOO, GLOO.replace("connect [127.0.0.1]:3210", "x"), LAUNCH]
)
def test_reading_agrees(given: str, capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(given)
    _, text = answer(capsys, "read", str(tmp_path / "a.txt"))
    assert not re.search("reports of the kernel|no known failure", text), text
