"""Error catalogue: each form in which libraries print an error is known, causes go before consequences."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from fabtui.diagnosis.diagnosis import diagnose, search
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import (
    CATALOGUES,
    common_error,
    kind_of_error,
    meaning_of,
    meaning_of_measurement,
    meanings,
    prepared,
)
from fabtui.diagnosis.knowledge.failure_stage import stages
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.events import Measured, NodeState, NodeUpdate
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.findings import evidence, title
from fabtui_node.protocol import ErrorKind
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

#: Errors of the field, with each form in which libraries print them; E1 to E36 are the numbers of its survey.
FORMS = {
    "E163": ("mlx5_cmd_out_err:808:(pid 7): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8)",),
    "E164": ("socketFinalizeAccept: wrong type 4 != 3", "socketFinalizeAccept: wrong type 3 != 4"),
    "E165": ("NCCL WARN ncclSocketInit: Socket creation failed : Address family not supported by protocol",),
    "E118": ("NCCL WARN Cuda failure 500 'named symbol not found'", "Cuda failure 'invalid device function'"),
    "E130": ("NCCL WARN ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER",),
    "E131": ("NCCL WARN Bootstrap Root : mismatch in info from procs, nranks 8 vs 16",),
    "E132": (
        "NCCL WARN Message truncated : received 1024 bytes instead of 256",
        "NCCL WARN NET/Socket : peer 10.0.0.2<4> message truncated : receiving 65536 bytes instead of 32768",
        "NCCL WARN NET/IB : collective mismatch error local size 8 remote 16 addr 7f01 rkey 3",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running ALLREDUCE",
    ),
    "E133": ("NCCL WARN NET/IB: NCCL_IB_SUBNET_PREFIX_LEN=40 is out of range [1,32]",),
    "E134": ("n060:7:9 [0] graph/xml.cc:66 (f) NCCL WARN XML Parse : Expected (double) quote.",),
    "E135": (
        "NCCL WARN Could not find real path of /sys/class/pci_bus/0000:00/../../0000:00:07.0",
        "n060:7:9 [0] graph/topo.cc:914 NCCL WARN Add NVLink error : could not find DEV for GPU 3",
    ),
    "E136": (
        "n060:7:9 [0] misc/argcheck.cc:16 NCCL WARN AllReduce : sendbuff argument is NULL",
        "n060:7:9 [0] init.cc:2350 (parseCommConfig) NCCL WARN Invalid config policy attribute value 7",
    ),
    "E138": ("n060:7:9 [0] include/alloc.h:30 NCCL WARN Failed to malloc 1048576 bytes", "Couldn't allocate work buf."),
    "E139": ("NCCL WARN gdr_map(handle 7f01, size 65536) failed: 22",),
    "E140": ("NCCL WARN nvmlInit_v2() failed: Driver/library mismatch of versions",),
    "E141": ("NCCL WARN Communicator does not support symmetric memory!",),
    "E143": ("NCCL WARN UDS: Sending data over socket 3 failed : Connection refused (111)",),
    "E144": (
        "NCCL WARN Error: failed to create shared memory file /dev/shm/nccl-03v824, error Permission denied (13)",
    ),
    "E146": ("RuntimeError: [/opt/gloo/transport/tcp/loop.cc:48] pipe: Too many open files",),
    "E147": ("n060:7:9 [0] proxy.cc:298 NCCL WARN List loop at element 3-3",),
    "E153": (
        "--data_validation is only supported in bandwidth tests",
        "Duration mode doesn't work with events.",
        "Post list size must be a multiple of CQ moderation",
    ),
    "E154": (
        "RuntimeError: Tensors must be contiguous",
        "[rank3]: ValueError: input tensor must be the same type as the output tensor.",
    ),
    "E155": ("RuntimeError: No backend type associated with device type cpu",),
    "E157": ("RuntimeError: [/opt/gloo/rendezvous/file_store.cc:50] File already exists: /tmp/store",),
    "E161": ("NCCL WARN AllReduce: communicator encountered a fatal error (detected in test)",),
    "E162": (" Failed to complete run_iter_bw function successfully", "Completion with error at client"),
    "E80": (
        "n060:7:9 [0] transport/nvls.cc:254 (ncclNvlsSetup) NCCL WARN Cuda failure 401 'the present state'",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1 'invalid argument'.",
    ),
    "E81": ("Cuda failure 101 'invalid device ordinal'", "failed to peer with device 3: 101 invalid device ordinal"),
    "E82": (
        "CUDA error: peer access is not supported between these two devices",
        "transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported",
        "failed to peer with device 1(=1a000): 217 peer access is not supported between these two devices",
    ),
    "E83": ("NCCL WARN hipIpcGetMemHandle failed : invalid argument",),
    "E85": ("ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:2 IMEX daemon status is -3 (not READY)",),
    "E86": (
        "NCCL WARN NET/OFI Unable to register memory (type = 2) for device 1. RC: -12, Error: Cannot allocate memory",
        "NET/OFI Could not register dummy buffer for flush, dev: 0 failed",
    ),
    "E87": ("NCCL WARN NET/OFI Couldn't open a fabric access domain. RC: -12, ERROR: Cannot allocate memory",),
    "E88": ("NCCL WARN NET/OFI Couldn't open AV. RC: -12, ERROR: Cannot allocate memory",),
    "E89": ("efa 0000:00:1a.0 efa_0: Failed to register mr [-12] error", "efa_1: ALLOC_PD failed, err -12"),
    "E90": (
        "Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
        "DMA-BUF is not supported on this GPU: fail",
    ),
    "E91": ("IB device mlx5_9 not found: error", "NET/IB : Unable to open device mlx5_4, error"),
    "E94": ("Couldn't init GPU context: 1, error",),
    "E95": (
        "[c10d] The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29400).",
        "torch.distributed.DistNetworkError: The client socket has failed to connect to [n1]:29500 (errno: 110).",
    ),
    "E96": ("The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",),
    "E97": ("[c10d] The IPv6 network addresses of (n1, 29500) cannot be retrieved (gai error: -2 - unknown).",),
    "E98": ("torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 7/8 clients joined.",),
    "E99": ("Heartbeat monitor timed out! Process will be terminated after dumping debug info.",),
    "E100": ("Rank 3 failed to pass monitoredBarrier in 10000 ms, error",),
    "E101": (
        "slurmstepd: error: pyxis: couldn't start container",
        "nvidia-container-cli: initialization error: nvml error",
    ),
    "E102": (
        "srun: error: Task launch for StepId=7.0 failed on node n2: Socket timed out on send/recv operation",
        "srun: error: Unable to create step for job 7: Socket timed out on send/recv operation",
    ),
    "E103": ("Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: SO_ERROR: x, remote=[127.0.1.1]:9",),
    "E104": ("Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: SO_ERROR: x, remote=[10.0.0.2]:9",),
    "E105": ("mlx5_core 0000:61:00.0: mlx5_health_check: device's health compromised - reached miss count, error",),
    "E106": ("NETDEV WATCHDOG: ens1f0np0 (mlx5_core): transmit queue 3 timed out",),
    "E107": ("watchdog: BUG: soft lockup - CPU#3 stuck for 23s!",),
    "E108": ("mlx5_core 0000:3b:00.0: probe_one:1779:(pid 7): mlx5_init_one failed with error code -110",),
    "E109": ("NET/IB : mlx5_0:1 async fatal event on CQ (0x7f01) handle=3 cqe=4: CQ error",),
    "E110": ("transport/net_ib/p2p_resiliency.cc:64 (f) NCCL WARN NET/IB: The error is fatal (x). Cannot continue.",),
    "E113": ("CUDA error: uncorrectable NVLink error detected during the execution",),
    "E114": ("NVRM: Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76",),
    "E115": ("Cuda failure 803 'system has unsupported display driver / cuda driver combination'",),
    "E116": ("Cuda failure 100 'no CUDA-capable device is detected'",),
    "E122": ("Cuda failure 401 'the operation cannot be performed in the present state'",),
    "E123": ("n061: Test NCCL failure common.cu:303 'remote process exited or there was a network error / '",),
    "E124": ("torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0",),
    "E125": ("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",),
    "E49": ("nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error",),
    "E37": (
        "Couldn't allocate MR with error=14",
        "nvshmem WARN neither nv_peer_mem, or nvidia_peermem detected. Skipping transport.",
    ),
    "E48": ("Verification error @ element 1: val = 0.000000, ref = 4.000000",),
    "E51": (
        "Out of memory: Killed process 1041 (python) total-vm:9kB, anon-rss:8kB",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task=python,pid=1041,uid=0",
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "srun: error: n2: task 2: Out Of Memory",
    ),
    "E52": (
        "srun: error: task 2 launch failed: Slurmd could not connect IO",
        "slurmstepd: error: Could not open stdout file /scratch/7/n2.out: No space left on device",
    ),
    "E38": (
        "Killed",
        "/home/ann/train.sh: line 31:  4711 Killed                  python train.py",
        "srun: error: n2: task 2: Killed",
    ),
    "E1": (
        "with error 12, opcode 1, len 0, vendor err 129",
        "with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80:: hca mlx5_10",
        "with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_0",
        " Failed status 12: wr_id 0 syndrom 0x81",
        "ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
        " Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81",
    ),
    "E4": (
        "with error 5, opcode 1, len 0, vendor err 249",
        "with status=IBV_WC_WR_FLUSH_ERR(5) opcode=0 vendor_err=244",
    ),
    "E5": ("with error 4, opcode 0, len 0, vendor err 81", "with status=IBV_WC_LOC_PROT_ERR(4) opcode=0 vendor_err=81"),
    "E6": (
        "with status=1 opcode=0 len=0 vendor err 105",
        "with error 9, opcode 0, len 0, vendor err 138",
        "NET/IB : mlx5_3:1 async fatal event on QP (0x1): local access violation work queue error",
    ),
    "E7": (
        "ib_mlx5_log.c:177  Remote access error on mlx5_0:1/RoCE (synd 0x13 vend 0x88 hw_synd 0/0)",
        "with status=10 opcode=0 len=0 vendor err 136",
        "with status=8 opcode=0 len=0 vendor err 4",
    ),
    "E8": ("with status=13 opcode=0 len=0 vendor err 135", "with status=IBV_WC_RNR_RETRY_EXC_ERR(13) opcode=0"),
    "E9": (
        "Call to ibv_modify_qp failed with error Connection timed out errno 110",
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3, curr state INIT, next state RTR",
    ),
    "E10": (
        "Call to ibv_modify_qp failed with error Invalid argument errno 22",
        "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0",
    ),
    "E11": (
        "Call to ibv_modify_qp failed with error Network is unreachable",
        "Call to ibv_modify_qp failed with 101 Network is unreachable, on dev mlx5_0",
    ),
    "E12": (
        "Call to ibv_modify_qp failed with error No such device",
        "Call to ibv_modify_qp failed with 19 No such device, on dev mlx5_0",
    ),
    "E13": (
        "Call to ibv_create_cq failed with error Cannot allocate memory errno 12",
        "Call to ibv_create_qp failed with error Cannot allocate memory",
        "Call to ibv_reg_mr failed with error Cannot allocate memory",
        "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    ),
    "E14": ("Call to ibv_create_cq failed", "Call to ibv_create_cq failed with error Operation not permitted errno 1"),
    "E15": ("NET/IB : No device found.", "Using network Socket"),
    "E16": ("Failed to open libibverbs.so[.1]", "Failed to open libibverbs.so.1"),
    "E17": ("Failed to initialize any NET plugin",),
    "E18": (
        "socketStartConnect: Connect to 10.0.0.2<45763> failed : Connection refused",
        "socketPollConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort",
        "socketStartConnect: Connect to 10.0.0.2<45763> failed : No route to host",
        "include/socket.h:361 NCCL WARN Call to connect timeout : Connection refused",
        "socketPollConnect: connect to 10.0.0.2<4> returned Connection refused, exceeded error retry count",
        "socketPollConnect: connect to 10.0.0.2<4> returned 111, exceeded error retry count after 35 attempts",
    ),
    "E19": (
        "socketStartConnect: Connect to 10.0.0.2<45763> failed : Connection timed out",
        "ncclCommInitRankConfig comm 0x5 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 18000 commId 0x7 - Init START",
    ),
    "E20": (
        "socketProgress: Connection closed by remote peer node1<57557>",
        "Proxy Call to rank 3 failed (Connect)",
        "socketProgressOpt: Call to recv from 172.16.0.1<33759> failed : Connection reset by peer",
    ),
    "E21": (
        "socketFinalizeAccept: wrong type 1 != 3",
        "bootstrap: message type 4 != 3",
        "socketFinalizeAccept: wrong magic 7b != 5a",
        "magic mismatch",
    ),
    "E22": (
        "Bootstrap : no socket interface found",
        "NET/Socket : no device found matching eth9, verify NCCL_OOB_NET_IFNAME",
    ),
    "E23": (
        "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000",
        "Multiple Ranks are using the same GPU/Partition",
    ),
    "E24": ("Mismatched NCCL version detected",),
    "E25": ("Detected mixed local Net device counts across ranks (min 7, max 8)",),
    "E26": (
        "NET/IB : mlx5_3:1 async fatal event: port error",
        "NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)",
        "NET/IB : mlx5_3:1 GID table changed",
        "NET/IB : mlx5_3:1 speed change detected",
    ),
    "E27": ("NET/IB : Attempted to connect incompatible devices mlx5_0:1/IB and mlx5_bond_0:1/RoCE",),
    "E28": ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",),
    "E29": (
        "Error: failed to extend /dev/shm/nccl-03v824 to 4194660 bytes",
        "n060:7:9 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
        "Bus error (core dumped)",
        "training ended with a bus error",
    ),
    "E30": ("unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory",),
    "E31": ("Cuda failure 802 'system not yet initialized'", "Cuda failure 'system not yet initialized'"),
    "E32": ("transport/p2p.cc:310 NCCL WARN Cuda failure 800 'operation not permitted'",),
    "E33": (
        "cuMemSetAccess(ptr, size, &desc, 1) failed: CUDA_ERROR_INVALID_VALUE",
        "[CUDA_ERROR_INVALID_VALUE] invalid argument in expression cuMemSetAccess(buffer, size, &desc, 1)",
    ),
    "E34": (
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "NCCL error in: ProcessGroupNCCL.cpp:1191, unhandled system error, NCCL version 2.21.5",
        "unhandled system error",
    ),
    "E35": (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=SEND, NumelIn=1, Timeout(ms)=600000)",
    ),
    "E36": (
        "# Out of bounds values : 3 FAILED",
        "verify: 1 of 4194304 bytes are wrong in message 21, the first at offset 2097152",
        "  1048576    262144   float     sum     -1    35.20   29.79   52.13     17    35.10   29.88   52.28      0",
        "  1048576    262144   float     sum     -1    35.20   29.79   52.13      0    35.10   29.88   52.28      4",
    ),
}

COMPLETION = "NET/IB : Got completion from peer 10.2.0.5<33092> with "


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (COMPLETION + "error 12, opcode 1, len 0, vendor err 129", "RETRY_EXC"),
        (COMPLETION + "status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80:: hca mlx5_10", "RETRY_EXC"),
        (COMPLETION + "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129", "RETRY_EXC"),
        (COMPLETION + "status=13 opcode=0", "RNR_RETRY"),
        (COMPLETION + "error 4, opcode 0, len 0, vendor err 81", "LOC_PROT"),
        (COMPLETION + "error 9, opcode 0, len 0, vendor err 138", "MTUs"),
        (COMPLETION + "status=5 opcode=0", "earlier error"),
        ("Call to ibv_modify_qp failed with error Connection timed out errno 110", "does not resolve"),
        (
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3, curr state INIT",
            "does not resolve",
        ),
        ("Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0", "NCCL_IB_GID_INDEX"),
        ("Call to ibv_modify_qp failed with error Network is unreachable", "no IP route"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memlock"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory errno 12", "memlock"),
        ("NET/IB : No device found.", "no RDMA device"),
        ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("socketStartConnect: Connect to 10.0.0.2<4> failed : Software caused connection abort", "not answered"),
        ("connect: n1:0: connect to 10.0.0.1:39505: Connection refused", "nothing listens"),
        ("Cuda failure 802 'system not yet initialized'", "Fabric Manager"),
        ("Cuda failure 2 'out of memory'", "another process"),
        ("verify: 1 of 4194304 bytes are wrong in message 21, the first at offset 2097152", "differs from sent"),
        ("verify: 3 of 64 bytes looked at around offset 0 are wrong, the first at 7", "differs from sent"),
        ("the rank host of n000 ended with signal 9: a last line", "were killed"),
        ("socketProgress: Connection closed by remote peer node1<57557>", "the other process"),
    ],
)
def test_errors_are_known_in_the_words_of_their_libraries(printed: str, words: str) -> None:
    found = meaning_of(printed)
    assert found is not None
    assert words in found.text


#: Lines above an error in which a log names the program that prints it.
NAMED = {
    "perftest": "$ ib_write_bw -d mlx5_0 n061\n",
    "torch": '  File "/venv/torch/distributed/distributed_c10d.py", line 83, in wrapper\n',
    "library": "NCCL version 2.27.3+cuda12.9\n",
}


def codes_in(log: str) -> list[str]:
    reader = LogReader()
    reader.add(log)
    found = reader.result()
    return [one.meaning.code for one in (*found.causes, *found.notices)]


@pytest.mark.parametrize("code", FORMS)
def test_every_form_of_the_survey_has_its_number(code: str) -> None:
    within = {one.within for one in meanings() if one.code == code and one.within}
    above = "".join(NAMED.get(name, "") for name in within)
    for form in FORMS[code]:
        assert codes_in(above + (COMPLETION + form if form.startswith("with ") else form)) == [code], form


@pytest.mark.parametrize(
    ("code", "form"),
    [
        ("E153", "Duration mode doesn't work with events."),
        ("E153", "Requested QP size might be too big. Try reducing TX depth and/or inline size."),
        ("E154", "RuntimeError: Tensors must be contiguous"),
        ("E157", "File already exists"),
        ("E145", "undefined symbol: _ZN3c10"),
    ],
)
def test_words_of_many_programs_count_where_the_log_names_the_right_one(code: str, form: str) -> None:
    (within,) = {one.within for one in meanings() if one.code == code}
    named = {**NAMED, "gloo": "third_party/gloo\n"}
    assert codes_in(form) == []
    assert codes_in(named[within] + form) == [code]


def test_every_number_of_the_survey_is_there() -> None:
    assert {f"E{number}" for number in range(1, 37)} <= {one.code for one in meanings()}
    # These two depend on more than one line: see the tests of logs.
    assert {f"E{number}" for number in range(1, 37)} - FORMS.keys() == {"E2", "E3"}


def test_the_example_of_an_error_has_its_meaning() -> None:
    shown = [one for one in meanings() if one.pattern is not None]
    found = {one.id: meaning_of(one.prints, notices=True, general=one.general) for one in shown}
    assert {name: one and one.id for name, one in found.items() if one is None or one.id != name} == {}
    assert len(found) == len(shown)


@pytest.mark.parametrize(
    "printed",
    [
        "  1048576    262144   float     sum     -1    35.20   29.79   52.13      0    35.10   29.88   52.28      0",
        "# Out of bounds values : 0 OK",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "Using network IB",
        "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected",
        "NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2",
    ],
)
def test_healthy_lines_are_no_errors(printed: str) -> None:
    assert meaning_of(printed, notices=True) is None


def test_lines_that_are_no_errors_do_not_explain_a_failure() -> None:
    assert meaning_of("transfer: no first byte came", "Using network Socket") is None


def test_an_error_between_nics_of_one_node_is_another_than_between_nodes() -> None:
    error = COMPLETION + "status=12 opcode=0 len=0 vendor err 129"
    rows = [
        Measurement(Layer.P2P, "a:0", f"{node}:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
        for node in "ab"
    ]
    assert [found and found.code for found in map(meaning_of_measurement, rows)] == ["E3", "E1"]


@pytest.mark.parametrize(
    "printed",
    ["", "connect: timed out after 5.0 s", COMPLETION + "error 120", "ibv_modify_qp", "transfer: no first byte came"],
)
def test_what_is_not_known_means_nothing(printed: str) -> None:
    assert meaning_of(printed, None) is None


def test_a_cause_goes_before_what_follows_from_it() -> None:
    log = f"{COMPLETION}status=5 opcode=0\nConnection closed by remote peer x\n{COMPLETION}status=12 opcode=0"
    found = meaning_of(log)
    assert found is not None
    assert "RETRY_EXC" in found.text


def test_the_catalogue_is_valid() -> None:
    found = [one for name in CATALOGUES for one in load(name)["error"]]
    assert len({one["id"] for one in found}) == len(found) > 30
    allowed = {
        *("id", "code", "prints", "pattern", "kind", "refines", "when", "text", "next", "src", "dst"),
        *("both", "node"),
    }
    allowed |= {"follows", "role", "cause_if", "stages", "within", "beside"}
    named = {meaning.id: meaning for meaning in meanings()}
    for one in found:
        meaning = named[one["id"]]
        assert one.keys() <= allowed, one["id"]
        assert re.fullmatch(r"[a-z0-9-]+", one["id"])
        assert re.fullmatch(r"E[1-9]\d{0,2}", one["code"]), one["id"]
        assert one["text"][-1] != "." == one["next"][-1], one["id"]
        assert meaning.role in ("cause", "consequence", "notice"), one["id"]
        assert set(meaning.stages) <= {stage.id for stage in stages()}, one["id"]
        assert meaning.cause_if in ("", "several-nodes", "alone"), one["id"]
        assert meaning.within in ("", "library", "torch", "gloo", "perftest"), one["id"]
        assert set(meaning.follows) <= {other["id"] for other in found}, one["id"]
        assert not meaning.kind or meaning.kind in [kind.value for kind in ErrorKind], one["id"]
        # Without unbounded or nested repetition, a search takes linear time.
        assert not re.search(r"(?<!\\)[*+]|\{\d+,\}|\)\{", one.get("pattern", "")), one["id"]
    for command in load("next_commands")["preflight"].values():
        assert command.startswith("ssh {node} ")


def test_the_kind_on_the_wire_counts_without_a_known_text() -> None:
    found = meaning_of("anything", kind="frozen")
    assert found is not None
    assert found.id == "ranks-frozen"
    assert meaning_of("anything", kind="cancelled") is None


def test_long_and_hostile_text_is_searched_quickly() -> None:
    assert meaning_of("Got completion " * 100_000) is None
    assert meaning_of("ibv_modify_qp failed" + "A" * 1_000_000) is None


def test_a_finding_has_the_meaning_of_its_error_and_commands() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: (s, d) == ("a:0", "b:1")))
    error = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0"
    row = Measurement(Layer.P2P, "a:0", "b:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
    model.apply(Measured(measurements=[row], time=3.0))
    (found,) = diagnose(model).findings
    assert any(line.startswith("means: E9, the GID of the other NIC does not resolve") for line in evidence(found))
    assert found.next[:2] == ("ssh a ip route get 10.1.0.2 from 10.0.0.1", "ssh a ip neigh")


def test_a_node_that_is_gone_is_not_explained_by_an_error_of_another() -> None:
    model = fabric("abc", 2, dead_if(lambda s, d: "c" in (s[0], d[0])))
    error = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0"
    row = Measurement(Layer.P2P, "a:0", "c:1", Verdict.FAILED, unit="GB/s", bytes=8, time=3.0, error=error)
    model.apply(Measured(measurements=[row], time=3.0))
    model.apply(NodeUpdate(node="c", state=NodeState.LOST, text="the connection was cut", time=4.0))
    assert title(diagnose(model).findings[0]) == "c lost"
    assert evidence(diagnose(model).findings[0])[0] == "the connection was cut"
    assert not any("means" in line for line in evidence(diagnose(model).findings[0]))


def test_errors_that_differ_in_details_are_one_kind() -> None:
    assert kind_of_error("connect to 10.0.0.1:4711: rank 3") == kind_of_error("connect to 10.9.0.7:99: rank 12")
    assert kind_of_error("n060:3 is gone") == kind_of_error("n061:12 is gone")
    assert kind_of_error("fe80::1 no route") == kind_of_error("fe80::aa:2 no route")
    assert kind_of_error("timed out after 1.5 s") == kind_of_error("timed out after 30 s") == "timed out after # s"
    assert kind_of_error("timed out") != kind_of_error("refused")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((), None),
        (("no route to 10.0.0.1",), ("no route to 10.0.0.1", None, 0, "b:0")),
        (("refused", "no route to 10.0.0.1", "no route to 10.0.0.2"), ("no route to 10.0.0.1", 2, 1, "b:1")),
        (("x", "y", "y", "z", "y"), ("y", 3, 2, "b:1")),
        (("y", "x", "x", "y"), ("y", 2, 1, "b:0")),
        (("x", "y", "y", "x"), ("y", 2, 1, "b:1")),
    ],
)
def test_the_error_that_most_pairs_have(errors: tuple[str, ...], expected: tuple[str, int | None, int, str]) -> None:
    rows = [Measurement(Layer.P2P, "a:0", f"b:{at}", Verdict.TIMEOUT, error=text) for at, text in enumerate(errors)]
    kinds = list(map(kind_of_error, errors))
    found = common_error(Counter(kinds), {kind: kinds.index(kind) for kind in kinds}, rows.__getitem__)
    assert (None if found is None else (*found.fact, found.example.dst)) == expected


def test_the_catalogue_is_prepared_one_part_at_a_time() -> None:
    for part in (load, meanings):
        part.cache_clear()
    read = [load.cache_info().misses for _ in prepared()]
    assert read[: len(CATALOGUES)] == list(range(1, len(CATALOGUES) + 1)), "one file in each step"
    assert load.cache_info().misses == len(CATALOGUES)
    assert meanings.cache_info().misses == 1


def test_the_first_search_prepares_the_catalogue_in_steps_of_its_own() -> None:
    model = fabric("ab", 2, dead_if(lambda src, dst: src == "a:0"))
    load.cache_clear()
    meanings.cache_clear()
    tally = Survey(model).finish()
    read = [load.cache_info().misses for _ in search(model, tally)]
    files = len(CATALOGUES)
    assert read[: files + 1] == [*range(1, files + 1), files], "before any rule asks for a meaning"
