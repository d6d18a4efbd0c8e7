"""Tables of transfer benchmarks, and lists of pairs of nodes with a bandwidth."""

from __future__ import annotations

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source

PAIRS = """node-601 node-602 46.1
node-601 node-603 45.9
node-601 node-644 12.3
node-602 node-603 46.4
node-602 node-644 12.1
node-603 node-644 12.2
node-603 node-605 46.0
"""
NIXL = """Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)
----------------------------------------------------------------
4096                1              1.234000       3.300000
"""
UCX = """|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
Final:                 50000     40.000    40.050    40.100    24960.00   24940.00       24960       24940
"""
NVSHMEM = """#shmem_put_bw
| size(B)                | BW GB/sec            |
| 1024                   | 0.123400             |
"""


def test_slow_pairs_name_the_node_that_they_share() -> None:
    result = read(Source("pairs.txt", PAIRS))
    assert (result.kind, len(result.values["pairs"]), result.values["slow"]) == ("node-pairs", 7, 3)
    assert result.values["answer"][0] == "node-644 is in all 3 slow pairs"


@pytest.mark.parametrize(
    ("text", "kind", "row"),
    [
        (NIXL, "nixlbench", {"block_size_b": 4096, "batch_size": 1, "b_w_gb_sec": 1.234, "avg_lat_us": 3.3}),
        (NVSHMEM, "nvshmem-perftest", {"size_b": 1024, "bw_gb_sec": 0.1234}),
    ],
)
def test_a_table_is_read(text: str, kind: str, row: dict[str, float]) -> None:
    result = read(Source("table.txt", text))
    assert (result.kind, result.values["rows"]) == (kind, [row])


def test_the_final_line_of_ucx_perftest_is_read() -> None:
    result = read(Source("ucx.txt", UCX))
    (row,) = result.values["rows"]
    assert (result.kind, row["final"], row["bandwidth"], row["average_overhead"]) == (
        "ucx_perftest",
        True,
        24960,
        40.05,
    )
