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
    (LAUNCH, r"E394.*bug of NCCL 2\.25\.1.*2\.26\.2 ends it", "Compare the arguments"),
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
    (
        "docker: Error: OCI runtime create failed: runc create failed: unable to start container process: error "
        "running hook: exit status 1, stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization "
        "error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: "
        "unknown.\n",
        "E240.*libnvidia-ml.so.1, a library of the NVIDIA driver",
        "E101",
    ),
    ("slurmd[57]: fatal: gres.conf duplicate records for gpu\n", "E272.*gres.conf has an entry that is refused", ""),
    (
        "subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no 10.0.0.7 hostname' returned non-zero "
        "exit status 255.\n",
        "10.0.0.7: no key of this user",
        "NODE",
    ),
    (
        "n7: Permission denied, please try again.\nn7: me@n7: Permission denied (publickey,password).\npdsh@h: n7: ssh "
        "exited with exit code 255\n",
        "by SSH",
        "owner and mode",
    ),
    (
        "dynamo vllm\nnats.js.errors.ServiceUnavailableError: nats: ServiceUnavailableError: code=None\n",
        "E275.*JetStream",
        "",
    ),
    (
        "    self.runtime = deep_ep_cpp.Buffer(self.rank, num_nvl_bytes, num_rdma_bytes)\nRuntimeError: Failed: "
        "Assertion error /src/DeepEP/csrc/deep_ep.cpp:32 'num_ranks > NUM_MAX_NVL_PEERS or low_latency_mode'\n",
        "E400.*a.txt:2: .*num_ranks > NUM_MAX_NVL_PEERS",
        "get_rdma_size_hint",
    ),
    (
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: MPI size 1 != TP size 2 * PP size 1 (/src/w.cpp:99)\n",
        "E276.*number of processes",
        "",
    ),
    ("NVSHMEM version 3.5.19\nDeepEP error: timeout (dispatch CPU)\n", "a bug of NVSHMEM 3.5.19", ""),
    ("NVSHMEM version 3.4.5\nDeepEP error: timeout (dispatch CPU)\n", "E305", "a bug of NVSHMEM"),
    (
        "INFO 02-26 ray_utils.py:212] Waiting for creating a placement group of specs for 30 seconds.\n",
        "near the end it waits",
        "no failure",
    ),
)
IBSTAT = """\
$ ibstat
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: {}
\t\tLink layer: InfiniBand
"""
BANDWIDTH = """\
$ ib_write_bw --report_gbits 10.0.0.2
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             13.20              13.10              0.024986
---------------------------------------------------------------------------------------
"""
PODS = """\
NAME        READY   STATUS             RESTARTS   AGE   IP           NODE    NOMINATED NODE   READINESS GATES
train-0     1/1     Running            0          5m    10.0.0.1     gpu-1   <none>           <none>
train-1     1/1     Running            0          5m    10.0.0.2     gpu-1   <none>           <none>
train-2     0/1     CrashLoopBackOff   7          5m    10.0.0.3     gpu-2   <none>           <none>
"""
ADDRESSES = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP group default qlen 1000
    inet 10.0.0.7/24 brd 10.0.0.255 scope global eth0
3: eth1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN group default qlen 1000
"""
IFCONFIG = """\
eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1450
        inet 10.244.0.53  netmask 255.255.255.0  broadcast 10.244.0.255
        RX errors 0  dropped 7  overruns 0  frame 0

ib0: flags=4099<UP,BROADCAST,MULTICAST>  mtu 2044
        inet 10.1.0.53  netmask 255.255.255.0  broadcast 10.1.0.255
"""
BRIEF = """\
lo               UNKNOWN        127.0.0.1/8 ::1/128
eth0             UP             10.0.0.7/24
eth1             DOWN
"""

#: Outputs of commands, and patterns of the whole answer.
OUTPUTS = (
    (IBSTAT.format(200) + BANDWIDTH, "much slower than the link.*13.1 Gb/s, beside a link of 200 Gb/s"),
    (IBSTAT.format(40) + BANDWIDTH, "^(?!.*much slower)"),
    (PODS, "share a node.*2 pods of train are on the node gpu-1.*train-2: CrashLoopBackOff on gpu-2"),
    (PODS.replace("gpu-1 ", "gpu-3 ", 1).replace("CrashLoopBackOff", "Running         "), "judged and well"),
    (ADDRESSES, "eth1/1: Down.*no signal"),
    (IFCONFIG, "ib0/1: Down.*no signal"),
    (BRIEF, "eth1/1: Down"),
    (BRIEF.replace("DOWN", "UP"), "judged and well"),
)


@pytest.mark.parametrize(("given", "words"), OUTPUTS)
def test_an_output_is_judged(given: str, words: str, capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(given)
    _, text = answer(capsys, "explain", str(tmp_path / "a.txt"))
    assert re.search(words, " ".join(text.split())), text


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
