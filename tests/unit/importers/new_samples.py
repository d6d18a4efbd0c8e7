"""Invented outputs in the grammar of tools for jobs and fabrics: kind, text, and the values it holds."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sample(NamedTuple):
    """An output: its kind, its text, and values by their path."""

    kind: str
    text: str
    values: dict[str, Any]


_INSPECTED = (
    '{{"header":{{"id":"0xa1","rank":{rank},"n_ranks":3,"nnodes":2}},'
    '"metadata":{{"inspector_output_format_version":"v4.0","dump_timestamp_us":1752867229276385,'
    '"hostname":"n06{rank}","pid":471{rank}}},'
    '"{kind}_perf":{{"{kind}":"{what}","{kind}_sn":{serial},"{kind}_msg_size_bytes":1048576,"{kind}_exec_time_us":{time},'
    '"{kind}_timing_source":"kernel_gpu","{kind}_algobw_gbs":17.5,"{kind}_busbw_gbs":{busbw}}}}}\n'
)
MONITOR = """\
******************* last output message *******************
../log2/4712/n070.out  ../log2/4712/n071.out
==> ../log2/4712/n070.out <==
[Rank 0] (after 10 iterations) memory (MB) | allocated: 1500.5 | max allocated: 2000.25 | reserved: 2100.0 |
==> ../log2/4712/n071.out <==
 iteration       20/      40 | consumed samples:   1280 | elapsed time per iteration (ms): 1401.5 | lm loss: 1.25E+01 |
312 lines..
******************* last error message *******************
==> ../log2/4712/n070.err <==
  warnings.warn(
17 lines..
******************* last gpu message *******************
==> ../log2/4712/n070.gpu <==
[0] NVIDIA A10       | 49'C,  97 % | 21000 / 22731 MB | alice(20990M)
[1] NVIDIA A10       | 50'C,   0 % |     0 / 22731 MB |
==> ../log2/4712/n071.gpu <==
[0] NVIDIA A10       | 51'C,   0 % |     0 / 22731 MB |
902 lines..
******************* job info 4712 *******************
items: n070.err n070.gpu n070.out
NNODES: 2
WORLD_SIZE: 4
NUM_LAYERS: 24
******************* iteration time *******************
iteration 10 : 4.1250 s
iteration 20 : 1.4015 s
debug?  : 0
"""
INSPECTOR = (
    _INSPECTED.format(rank=0, kind="coll", what="AllReduce", serial=7, time=61, busbw=17.25)
    + _INSPECTED.format(rank=1, kind="coll", what="AllReduce", serial=7, time=62, busbw=17.75)
    + _INSPECTED.format(rank=2, kind="coll", what="AllReduce", serial=4, time=66, busbw=16.5)
    + _INSPECTED.format(rank=0, kind="p2p", what="Send", serial=9, time=12, busbw=80.5)
)
PROMETHEUS = (
    "# HELP nccl_bus_bandwidth_gbs NCCL bus bandwidth in GB/s\n# TYPE nccl_bus_bandwidth_gbs gauge\n"
    'nccl_bus_bandwidth_gbs{version="v5.1",slurm_job_id="77",node="n060",gpu="GPU0",comm_name="DP Group 0",n_nodes="2",'
    'nranks="16",collective="AllReduce",message_size="4-5MB",algo_proto="RING_SIMPLE"} 44.125\n'
    'nccl_collective_exec_time_microseconds{version="v5.1",slurm_job_id="77",node="n060",gpu="GPU0",'
    'comm_name="DP Group 0",n_nodes="2",nranks="16",collective="AllReduce",message_size="4-5MB",'
    'algo_proto="RING_SIMPLE"} 201.5\n'
    'nccl_p2p_bus_bandwidth_gbs{version="v5.1",node="n061",gpu="GPU3",comm_name="unknown",nranks="16",'
    'p2p_operation="Recv",message_size="1-2MB"} 19.25\n'
)
JOB = """\
NODE_RANK: 1
MASTER_ADDR: 192.0.2.70
NNODES: 2
WORLD_SIZE: 8
GLOBAL_BATCH_SIZE: 64
PARTITION: 0-11-8-5
NUM_LAYERS: 48
(min, max) time across ranks (ms):
    forward-backward ...............................: (1200.12, 1300.34)
    optimizer ......................................: (10.12, 13.34)
 iteration       10/      50 | consumed samples:   640 | elapsed time per iteration (ms): 1423.8 | lm loss: 1.0E+01 |
"""
TIMERS = """\
times across ranks (ms):
  forward-compute:
     rank  0: 123.45
     rank  1: 223.45
     rank  2: 143.45
  backward-compute:
     rank  0: 301.45
     rank  1: 300.45
"""
TIMERS_PROFILE = """\
times across ranks (ms):
  forward-compute:
     rank  0: 300.25
 forward-compute start time lst:  1686726492.25 1686726492.5
 forward-compute end time lst:  1686726492.375 1686726492.75
     rank  1: 410.5
 forward-compute start time lst:  1686726492.125
 forward-compute end time lst:  1686726492.625
"""
TIMERS_OLD = "time (ms) | forward-compute: 310.85 | backward-compute: 500.10 | optimizer: 44.21\n"
TIMERS_MAX = (
    "max time across ranks (ms):\n"
    "    forward-backward ...............................: 2501.22\n"
    "    params-all-gather ..............................: 12.05\n"
)
EXPERIMENT = """\
############################################# Allgather #############################################
nranks=4
k=2, nelem_per_send=131072
check_iters=10, warmup_iters=10, iters=50
KERNEL_FILE=ring_kernel.cu

             size(B)        avg_time(us)        min_time(us)     avg_algbw(GB/s)     max_algbw(GB/s)
           536870912             2188.46             1999.87              245.32              268.45

############################################# Allreduce #############################################
nranks=4

             size(B)        avg_time(us)        min_time(us)     avg_algbw(GB/s)     max_algbw(GB/s)
           536870912             4400.10             4388.01              122.01              122.35
"""
MSCCLPP_TEST = """\
#
#                                        in-place                       out-of-place
#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)     (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144    13.10   80.04  140.07      0
     2097152        524288                                     20.10  104.33  182.58      3
"""
MSCCLPP_BENCHMARK = """\
+--------------+-----------+--------------+-------------+----------------+-------------------+------------------+----------+
| Size (fp16)  | Time (us) | AlgBW (GB/s) | Correctness | NCCL Time (us) | NCCL AlgBW (GB/s) | NCCL Correctness | Speed Up |
+--------------+-----------+--------------+-------------+----------------+-------------------+------------------+----------+
|   2.0 KiB    |    6.10   |     0.34     |     PASS    |     14.20      |        0.14       |       PASS       |   2.33   |
|   1.0 MiB    |   20.10   |    52.17     |     FAIL    |     34.20      |       30.66       |       PASS       |   1.70   |
+--------------+-----------+--------------+-------------+----------------+-------------------+------------------+----------+
"""  # noqa: E501
DEEPSPEED = """\

---- Performance of all_reduce on 16 devices ---------------------------------------------------------
Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)
----------------------------------------------------------------------------------------------------
2.0 B                1x16                      45.120 us            0.001                0.001
32.0 MB              16777216x16               1.512 ms             355.100              332.906

---- Performance of pt2pt on 2 devices ---------------------------------------------------------
Size (Bytes)         Description               Duration (us)        Throughput (GBps)    BusBW (GBps)
----------------------------------------------------------------------------------------------------
1048576              524288x16                 40.000               26.214               26.214
"""
QPERF = """\
tcp_bw:
    bw              =  4.75 GB/sec
    msg_rate        =  72.5 K/sec
    send_cpus_used  =    93 % cpus
tcp_lat:
    latency         =  21.4 us
tcp_lat:
    msg_size        =    1 bytes
    latency         =  7.39 ms
    msg_size        =    2 bytes
    latency         =  7.40 ms
udp_bw:
    send_bw         =  2.5 GB/sec
    recv_bw         =  625 MB/sec
rc_rdma_write_bw:
    bw              =  194 Gb/sec
conf:
    loc_node   =  n060
"""
IBDIAGNET = """\
Running version:   "IBDIAGNET 2.1.1.3d2bf71","IBDIAG 2.1.1"
Discovery
-I- Discovering ... 12 nodes (4 Switches & 8 CA-s) discovered.
-I- Fabric Discover finished successfully
---------------------------------------------
Port Counters
-E- lid=0x0007 dev=54000 S0c42a103007a1b2c/Nleaf1/P9
    port counter "symbol_error_counter" increased by 12
-W- lid=0x0009 dev=4123 S1/N1/U1 : cable not inspected
-W- lid=0x0009 dev=4123 S1/N1/U1 : cable not inspected
---------------------------------------------
Summary
-I- Stage                     Warnings   Errors     Comment
-I- Discovery                 0          0
-I- Port Counters             2          1
-I- Speed / Width checks      0          0
-I- Routing                   0          0          Not run

-I- You can find detailed errors/warnings in: /var/tmp/ibdiagnet2/ibdiagnet2.log
"""
IBDIAGNET_1 = """\
-I- Bad Links Info
-I- No bad link were found
----------------------------------------------------------------
-I- Stages Status Report:
    STAGE                                    Errors Warnings
    Bad GUIDs/LIDs Check                     0      0
    Specific Link Speed Check                5      0
    IPoIB Subnets Check                      0      1

Please see /tmp/ibdiagnet.log for complete log
"""
TOPOLOGY = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[060-061]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[062-063]
SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=n[060-063] Switches=leaf[1-2]
"""
TOPOLOGY_CONF = """\
# the fabric of the second hall
SwitchName=s0 \\
 Nodes=a[1-2],b7
switchname=s1 nodes=a[3-4]  # new
SwitchName=top Switches=s[0-1]
"""
BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=n[060-061] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n062 BlockSize=2\n"
BUSBW_HTML = """\
Bandwidth between nodes (in Gbps).

<table class="tg">
<thead>
  <tr>
    <th class="a"></th>
    <th class="b" colspan="2">RDMA</th>
    <th class="b" colspan="2">TCP</th>
  </tr>
</thead>
<tbody>
  <tr>
    <td>GPUs</td>
    <td>busbw</td>
    <td>algbw</td>
    <td>busbw</td>
    <td>algbw</td>
  </tr>
  <tr>
    <td>8</td>
    <td>1650.5</td>
    <td>943.1</td>
    <td>-</td>
    <td>-</td>
  </tr>
  <tr>
    <td>16</td>
    <td>120.3</td>
    <td>64.2</td>
    <td>30.25</td>
    <td>16.1</td>
  </tr>
</tbody>
</table>
"""
BUSBW_BARS = """\
| GPUs | RDMA busbw (GB/s) | RDMA algbw (GB/s) |
|------|------------------:|------------------:|
|    2 |             45.25 |             45.25 |
|    4 |             44.50 |             29.75 |
"""

# Made up after the source of ibv_devinfo (rdma-core) and of the driver efa: no link layer, no GUIDs.
EFA_VERBS = """\
hca_id:\trdmap16s27
\ttransport:\t\t\tunspecified (4)
\tfw_ver:\t\t\t\t0.0.0.0
\tnode_guid:\t\t\t0000:0000:0000:0000
\tsys_image_guid:\t\t\t0000:0000:0000:0000
\tvendor_id:\t\t\t0x1d0f
\tvendor_part_id:\t\t\t61344
\thw_ver:\t\t\t\t0xEFA0
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t4096 (5)
\t\t\tsm_lid:\t\t\t0
\t\t\tport_lid:\t\t0
\t\t\tport_lmc:\t\t0x01
\t\t\tlink_layer:\t\tUnspecified
"""
# Made up after the source of mlnx_qos (Mellanox/mlnx-tools), which prints the DSCPs of a priority eight to a line.
MLNX_QOS = """\
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:1 dscp:15,14,13,12,11,10,09,08,
\tprio:2 dscp:23,22,21,20,19,18,17,16,
\tprio:3 dscp:31,30,29,28,27,26,25,24,
\tprio:4 dscp:39,38,37,36,35,34,33,32,
\tprio:5 dscp:47,45,44,43,42,41,40,
\tprio:6 dscp:55,54,53,52,51,50,49,48,
\tprio:6 dscp:46,
\tprio:7 dscp:63,62,61,60,59,58,57,56,
default priority:
Receive buffer size (bytes): 20016,156096,0,0,0,0,0,0,total_size=1027728
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0   
\tbuffer      0   0   0   1   0   0   0   0   
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%
\t priority:  3
"""  # noqa: W291
MLNX_QOS_PCP = """\
DCBX mode: Firmware controlled
Priority trust state: pcp
default priority:
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   0   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: strict
\t priority:  0
"""
# Made up after the source of dcb (iproute2): numbers in JSON, and a key of arrays of pairs.
DCB_PFC = '{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[false,false,false,true,false,true,false,false]}\n'
DCB_APP = '{"dscp_prio":[[24,3," "],[26,3," "],[48,6," "]]}\n'
FI_INFO = """\
provider: efa
    fabric: efa
    domain: rdmap16s27-rdm
    version: 121.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap16s27-dgrm
    version: 121.0
    type: FI_EP_DGRAM
    protocol: FI_PROTO_EFA
"""
SIMPLE_P2P = """\
[./simpleP2P] - Starting...
Checking for multiple GPUs...
CUDA-capable device count: 2

Checking GPU(s) for support of peer to peer memory access...
> Peer access from NVIDIA A100-PCIE-40GB (GPU0) -> NVIDIA A100-PCIE-40GB (GPU1) : Yes
> Peer access from NVIDIA A100-PCIE-40GB (GPU1) -> NVIDIA A100-PCIE-40GB (GPU0) : Yes
Enabling peer access between GPU0 and GPU1...
cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 12.57GB/s
Run kernel on GPU1, taking source data from GPU0 and writing to GPU1...
Copy data back to host from GPU0 and verify results...
Verification error @ element 1: val = 0.000000, ref = 4.000000
Verification error @ element 2: val = 0.000000, ref = 8.000000
Disabling peer access...
Shutting down...
Test failed!
"""
NCCL_TOPOLOGY = """\
<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="0000ffff" arch="x86_64">
    <pci busid="0000:18:00.0" class="0x060400" device="0x8747" link_speed="8.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1b:00.0" class="0x030200" vendor="0x10de" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:c1:00.0" count="4" tclass="0x068000"/>
          <nvlink target="0000:c2:00.0" count="2" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:1a:00.0" class="0x020000" vendor="0x15b3" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" latency="0" speed="200000" port="1" guid="0x1" maxconn="131072" gdr="0"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
IMEX = """\
[Jan 21 2026 17:28:41] [INFO] [tid 4711] IMEX version 570.86.15 is running with the following configuration options
[Jan 21 2026 17:28:41] [INFO] [tid 4711] Logging level = 4
[Jan 21 2026 17:28:41] [ERROR] [tid 4711] Unable to find a local address in the list of nodes
"""
# Made up after the sources of ethtool, rdma-core, iperf3, pciutils and procps.
ETHTOOL_COUNTERS = "NIC statistics:\n" + "".join(
    f"     {name}: {count}\n"
    for name, count in {
        "rx_packets": 918273645, "rx_bytes": 81726354453627, "tx_packets": 817263544, "tx_bytes": 71625344526171,
        "rx_discards_phy": 12, "tx_errors_phy": 0, "rx_symbol_err_phy": 3, "rx_prio3_pause": 4711,
        "tx_prio3_pause": 12, "rx_prio3_buf_discard": 0, "module_bus_stuck": 0, "rx0_packets": 51,
    }.items()
)  # fmt: skip
ETHTOOL_PAUSE = """\
Pause parameters for ens3f0np0:
Autonegotiate:\ton
RX:\t\toff
TX:\t\toff
RX negotiated: on
TX negotiated: on
Statistics:
  tx_pause_frames: 5
  rx_pause_frames: 71
"""
ETHTOOL_DRIVER = """\
driver: mlx5_core
version: 23.10-1.1.9
firmware-version: 28.39.1002 (MT_0000000838)
expansion-rom-version:
bus-info: 0000:18:00.0
supports-statistics: yes
supports-test: yes
supports-eeprom-access: no
supports-register-dump: no
supports-priv-flags: yes
"""
ETHTOOL_MODULE = "".join(
    f"\t{label:<41} : {value}\n"
    for label, value in (
        ("Identifier", "0x11 (QSFP28)"),
        ("Extended identifier", "0xcc"),
        ("Connector", "0x0c (MPO Parallel Optic)"),
        ("Encoding", "0x05 (64B/66B)"),
        ("Vendor name", "ACME"),
        ("Vendor OUI", "00:02:c9"),
        ("Vendor PN", "QX-100"),
        ("Vendor SN", "4711AB"),
        ("Module temperature", "45.20 degrees C / 113.36 degrees F"),
        ("Module voltage", "3.2900 V"),
        ("Laser tx bias current (Channel 1)", "7.500 mA"),
        ("Transmit avg optical power (Channel 1)", "0.9000 mW / -0.46 dBm"),
        ("Rcvr signal avg optical power(Channel 1)", "0.0100 mW / -20.00 dBm"),
        ("Laser rx power low alarm   (Chan 1)", "On"),
    )
)
IBV_DEVICES = "    device          \t   node GUID\n    ------          \t----------------\n" + "".join(
    f"    mlx5_{at}          \ta088c20300e3{at:04x}\n" for at in range(10)
)
IPERF3 = """\
Connecting to host 192.0.2.2, port 5201
[  5] local 192.0.2.1 port 40012 connected to 192.0.2.2 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  10.9 GBytes  93.5 Gbits/sec    0   3.01 MBytes
[  5]   1.00-2.00   sec  10.8 GBytes  93.0 Gbits/sec   12   3.01 MBytes
[  5]   2.00-3.00   sec  10.9 GBytes  93.4 Gbits/sec    0   3.01 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-3.00   sec  32.6 GBytes  93.3 Gbits/sec   12             sender
[  5]   0.00-3.04   sec  32.6 GBytes  92.1 Gbits/sec                  receiver

iperf Done.
"""
LSPCI = """\
17:01.0 PCI bridge: Acme Device 0004 (rev 01) (prog-if 00 [Normal decode])
\tBus: primary=17, secondary=18, subordinate=18, sec-latency=0
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x16
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
18:00.0 Infiniband controller: Mellanox Technologies MT28908 Family [ConnectX-6]
\tSubsystem: Mellanox Technologies Device 0007
\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x16
"""
SYSCTL = """\
net.core.rmem_max = 212992
net.core.wmem_max = 212992
net.core.somaxconn = 4096
net.ipv4.ip_local_port_range = 32768\t60999
net.ipv4.conf.all.rp_filter = 2
net.ipv4.conf.all.arp_ignore = 0
net.ipv4.tcp_congestion_control = cubic
kernel.numa_balancing = 1
vm.swappiness = 60
fs.file-max = 9223372036854775807
"""
P2P_TEST = "".join(
    f"==> p2p-test-{src}-{dst}-4711.out <==\nn060 [0/4]\nn061 [1/4]\nn060 [0] : BEG send {src} -> {dst}\n"
    + (f"n060 [0] : OK {src} -> {dst}\n" if dst != 2 else "RuntimeError: NCCL error: unhandled system error\n")
    for src in range(2)
    for dst in range(4)
    if src != dst
)
DCGM_JSON = """\
{
  "DCGM GPU Diagnostic": {
    "test_categories": [
      {"category": "Deployment", "tests": [
        {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}
      ]},
      {"category": "Integration", "tests": [
        {"name": "PCIe", "results": [
          {"gpu_ids": "0", "status": "Pass"},
          {"gpu_ids": "1", "status": "Fail", "warnings": [{"error_id": 5, "warning": "replays are too high"}]}
        ]}
      ]}
    ],
    "version": "3.3.7"
  }
}
"""
SAMPLES = [
    Sample("nccl-inspector", INSPECTOR, {
        "communicators.0.ranks": 3, "communicators.0.nodes": 2, "version": "v4.0", "operations.#": 2,
        "operations.0.operation": "AllReduce", "operations.0.bytes": 1048576, "operations.0.count": 3,
        "operations.0.busbw": 17.25, "operations.0.busbw_min": 16.5, "operations.0.rank_of_min": 2,
        "operations.0.time": 62.0, "operations.1.busbw": 80.5, "ranks.#": 3, "ranks.2.node": "n062",
        "ranks.2.last.collective": 4, "ranks.0.last.Send": 9, "ranks.1.pid": 4711,
    }),
    Sample("nccl-inspector", PROMETHEUS, {
        "metrics.#": 2, "metrics.0.busbw": 44.125, "metrics.0.time": 201.5, "metrics.0.ranks": 16,
        "metrics.0.communicator": "DP Group 0", "metrics.1.operation": "Recv", "metrics.1.busbw": 19.25,
        "metrics.1.time": None, "metrics.1.job": None,
    }),
    Sample("job-monitor", MONITOR, {
        "job": "4712", "lines.#": 3, "lines.0.lines": 312, "lines.1.of": "error", "lines.1.lines": 17,
        "lines.2.lines": 902, "files.#": 5, "files.2.last": "warnings.warn(", "gpus.#": 3, "gpus.0.node": "n070",
        "gpus.0.memory_used": 21000, "gpus.1.index": 1, "gpus.2.node": "n071", "gpus.2.temperature": 51,
        "iterations.#": 2, "iterations.0.elapsed": 4.125, "iterations.1.loss": 12.5, "memory.0.reserved": 2100.0,
        "memory.0.max_allocated": 2000.25, "settings.0.NUM_LAYERS": "24", "total": 40,
    }),
    Sample("megatron-log", JOB, {
        "settings.0.NODE_RANK": "1", "settings.0.MASTER_ADDR": "192.0.2.70", "settings.0.WORLD_SIZE": "8",
        "settings.0.GLOBAL_BATCH_SIZE": "64", "settings.#": 1, "timers.#": 2, "timers.0.timer": "forward-backward",
        "timers.0.min": 1200.12, "timers.0.max": 1300.34, "iterations.0.elapsed": 1.4238,
    }),
    Sample("megatron-log", TIMERS, {
        "timers.#": 2, "timers.0.min": 123.45, "timers.0.max": 223.45, "timers.0.rank_of_max": 1, "timers.0.ranks": 3,
        "timers.1.rank_of_max": 0,
    }),
    Sample("megatron-log", TIMERS_PROFILE, {
        "timers.0.max": 410.5, "timeline.#": 2, "timeline.0.spent": 300.25, "timeline.1.rank": 1,
        "timeline.0.starts": [1686726492.25, 1686726492.5], "timeline.0.ends": [1686726492.375, 1686726492.75],
        "timeline.1.ends": [1686726492.625],
    }),
    Sample("megatron-log", TIMERS_OLD, {"timers.#": 3, "timers.1.timer": "backward-compute", "timers.1.max": 500.1}),
    Sample("megatron-log", TIMERS_MAX, {"timers.0.max": 2501.22, "timers.1.timer": "params-all-gather"}),
    Sample("mscclpp", EXPERIMENT, {
        "tables.#": 2, "tables.0.operation": "Allgather", "tables.0.ranks": 4, "tables.0.settings.k": 2,
        "tables.0.settings.KERNEL_FILE": "ring_kernel.cu", "tables.0.rows.0.bytes": 536870912,
        "tables.0.rows.0.avg_time": 2188.46, "tables.0.rows.0.max_algbw": 268.45, "tables.1.rows.0.avg_algbw": 122.01,
    }),
    Sample("mscclpp", MSCCLPP_TEST, {
        "tables.#": 1, "tables.0.rows.0.place": "in place", "tables.0.rows.0.busbw": 140.07,
        "tables.0.rows.1.place": "out of place", "tables.0.rows.1.time": 20.1, "tables.0.rows.1.wrong": 3,
    }),
    Sample("mscclpp", MSCCLPP_BENCHMARK, {
        "tables.0.rows.#": 2, "tables.0.rows.0.bytes": 2048, "tables.0.rows.0.algbw": 0.34,
        "tables.0.rows.1.correct": False, "tables.0.rows.1.nccl_algbw": 30.66, "tables.0.rows.1.speed_up": 1.7,
    }),
    Sample("deepspeed-comm", DEEPSPEED, {
        "tables.#": 2, "tables.0.operation": "all_reduce", "tables.0.ranks": 16, "tables.0.rows.1.bytes": 32 * 1024**2,
        "tables.0.rows.1.time": 1512.0, "tables.0.rows.1.printed_busbw": 332.906, "tables.0.rows.1.busbw": 41.61325,
        "tables.1.unit": "GBps", "tables.1.rows.0.busbw": 26.214, "tables.1.rows.0.time": 40.0,
    }),
    Sample("qperf", QPERF, {
        "tests.#": 7, "tests.0.bandwidth": 4.75, "tests.1.latency": 21.4, "tests.2.latency": 7390.0,
        "tests.3.latency": 7400.0, "tests.3.test": "tcp_lat", "tests.4.bandwidth": 0.625, "tests.5.bandwidth": 24.25,
        "tests.6.values.0.text": "n060", "tests.0.values.2.unit": "% cpus",
    }),
    Sample("busbw-table", BUSBW_HTML, {
        "tables.#": 1, "tables.0.by": "gpus", "tables.0.unit": "Gbps", "tables.0.rows.#": 4,
        "tables.0.rows.1": {"number": 8, "arm": "TCP", "busbw": None, "algbw": None},
        "tables.0.rows.2": {"number": 16, "arm": "RDMA", "busbw": 120.3, "algbw": 64.2},
        "tables.0.rows.3.busbw": 30.25,
    }),
    Sample("busbw-table", BUSBW_BARS, {
        "tables.#": 1, "tables.0.unit": "GB/s",
        "tables.0.rows.1": {"number": 4, "arm": "RDMA", "busbw": 44.5, "algbw": 29.75},
    }),
    Sample("ibdiagnet", IBDIAGNET, {
        "nodes": 12, "switches": 4, "hosts": 8, "version": "2.1.1.3d2bf71", "stages.#": 4, "stages.1.warnings": 2,
        "stages.1.errors": 1, "stages.3.comment": "Not run", "complaints.#": 2, "complaints.1.count": 2,
    }),
    Sample("ibdiagnet", IBDIAGNET_1, {"stages.#": 3, "stages.1.errors": 5, "stages.2.warnings": 1, "nodes": None}),
    Sample("slurm-topology", TOPOLOGY, {
        "records.#": 3, "records.2.switches": "leaf[1-2]", "records.2.level": 1, "nodes.#": 4,
        "nodes.2": {"node": "n062", "leaf": "leaf2"},
    }),
    Sample("slurm-topology", TOPOLOGY_CONF, {
        "records.#": 3, "nodes.#": 5, "nodes.4": {"node": "b7", "leaf": "s0"}, "nodes.3": {"node": "a4", "leaf": "s1"},
    }),
    Sample("slurm-topology", BLOCKS, {"nodes.2": {"node": "n062", "leaf": "b2"}, "records.0.kind": "block"}),
    Sample("ibv_devinfo", EFA_VERBS, {
        "devices.0.ca": "rdmap16s27", "devices.0.ports.0.link_layer": "Unspecified",
        "devices.0.transport": "unspecified", "devices.0.ports.0.state": "Active", "devices.0.ports.0.active_mtu": 4096,
    }),
    Sample("mlnx_qos", MLNX_QOS, {
        "trust": "dscp", "dcbx": "os", "pfc": [3], "dscp.3": [24, 25, 26, 27, 28, 29, 30, 31], "class": None,
        "dscp.6": [46, 48, 49, 50, 51, 52, 53, 54, 55], "dscp.5": [40, 41, 42, 43, 44, 45, 47],
    }),
    Sample("mlnx_qos", MLNX_QOS_PCP, {"trust": "pcp", "dcbx": "firmware", "pfc": [], "dscp": None}),
    Sample("dcb", DCB_PFC, {"pfc": [3, 5], "trust": None, "dscp": None}),
    Sample("dcb", DCB_APP, {"pfc": None, "trust": "dscp", "dscp": {"3": [24, 26], "6": [48]}}),
    Sample("fi_info", FI_INFO, {
        "domains": ["rdmap16s27"], "endpoints.#": 2, "endpoints.1.type": "FI_EP_DGRAM", "endpoints.0.version": "121.0",
        "error": None,
    }),
    Sample("simpleP2P", SIMPLE_P2P, {
        "access.#": 2, "access.1": {"from": 1, "to": 0, "can": True}, "from": 0, "to": 1, "bandwidth": 12.57,
        "passed": False, "wrong": 2,
    }),
    Sample("nccl-topology", NCCL_TOPOLOGY, {
        "gpus.0.dev": 0, "gpus.0.nvlinks": 6, "gpus.0.gdr": True, "gpus.0.bus": "0000:1b:00.0",
        "gpus.0.link_speed": 8.0,
        "nics.0.name": "mlx5_0", "nics.0.speed": 200.0, "nics.0.pcie": 126.0, "nics.0.gdr": False, "nics.0.numa": 0,
        "complete": True,
    }),
    Sample("ethtool-S", ETHTOOL_COUNTERS, {"counters.rx_discards_phy": 12, "counters.rx_bytes": 81726354453627}),
    Sample("ethtool-a", ETHTOOL_PAUSE, {
        "interfaces.0.interface": "ens3f0np0", "interfaces.0.rx": "off", "interfaces.0.rx_negotiated": "on",
        "interfaces.0.rx_frames": 71,
    }),
    Sample("ethtool-i", ETHTOOL_DRIVER, {
        "driver": "mlx5_core", "firmware": "28.39.1002 (MT_0000000838)", "bus": "0000:18:00.0",
    }),
    Sample("ethtool-m", ETHTOOL_MODULE, {
        "vendor": "ACME", "part": "QX-100", "temperature": 45.2, "voltage": 3.29, "rx_power": [0.01], "bias": [7.5],
        "tx_power": [0.9], "alarms": ["Laser rx power low alarm   (Chan 1)"],
    }),
    Sample("ibv_devices", IBV_DEVICES, {"devices.#": 10, "devices.9.ca": "mlx5_9"}),
    Sample("iperf3", IPERF3, {"bandwidth": 11.5125, "retransmits": 12, "remote": "192.0.2.2", "intervals.#": 3}),
    Sample("lspci", LSPCI, {
        "devices.#": 2, "devices.1.speed": 8.0, "devices.1.speed_max": 16.0, "devices.1.width": 16,
    }),
    Sample("sysctl", SYSCTL, {"settings.#": 10}),
    Sample("p2p-test", P2P_TEST, {"world": 4, "counts": {"ok": 4, "failed": 2}, "pairs.#": 6}),
    Sample("dcgmi-diag", DCGM_JSON, {
        "dcgm": "3.3.7", "failed": ["PCIe"], "tests.#": 2, "tests.0.result": "Pass", "messages.0.gpus": [1],
        "tests.1.entities": [["GPU", 0, "Pass"], ["GPU", 1, "Fail"]], "messages.0.text": "GPU 1: replays are too high",
    }),
    Sample("imex-log", IMEX, {"records": 3, "version": "570.86.15", "events.#": 1, "events.0.level": "ERROR"}),
]  # fmt: skip
