"""Reports of NCCL RAS of several versions, with the lines of its source and invented values; recorded reports."""

from __future__ import annotations

from ..probes.places import SAMPLES

HEAD = """\
NCCL version {version} compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        31   RUNNING  INCOMPLETE,MISMATCH

Errors
======

"""

#: One rank is missing, two are ahead, one is behind; the 28 others are not listed.
NCCL_2_27 = (
    HEAD.format(version="2.27.5")
    + """\
INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487 on node 192.0.2.13 managing GPU 5

#0-0 (00c264af53edbe98) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487 on node 192.0.2.13

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (00c264af53edbe98) MISMATCH
  Communicator ranks have different status
  31 ranks have status RUNNING
  Rank 21 has status NOCOMM -- GPU 5 managed by process 3487 on node 192.0.2.13
  Communicator ranks have different AllReduce operation counts
  28 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6651
  Rank 0 -- GPU 0 managed by process 11 on node 192.0.2.10
  Rank 1 -- GPU 0 (NVML 1) managed by process 12 on node 192.0.2.10
  Rank 9 has launched up to operation 6649 -- GPU 1 managed by process 77 on node 192.0.2.11

"""
)

#: The smaller side is ahead: those behind are not listed.
LEADERS_LISTED = (
    HEAD.format(version="2.30.7")
    + """\
Warnings
========

#0-0 (00c264af53edbe98) MISMATCH
  Communicator ranks have different AllReduce operation counts
  30 ranks have not launched any operations
  2 ranks have launched up to operation 1
  Rank 0 -- GPU 0 managed by process 11 on node 192.0.2.10
  Rank 1 -- [process information not found]

"""
)

#: 2.24 counts all collectives together and lists missing ranks as ranges; the nodes differ in their processes.
NCCL_2_24 = """\
NCCL version 2.24.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      3          8            1
      1          7            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      4         31           31

The outlier node:
  Node 192.0.2.13 running processes 40,41,42,43,44,45,46

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        29   RUNNING  INCOMPLETE

Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 3 ranks
  The missing ranks: 1,5-6

#0-0 (cf264af53edbe986) ERROR
  Asynchronous errors on 2 ranks
  Rank 3 reported Remote process error or network error -- GPU 3 managed by process 13 on node 192.0.2.10
  Rank 4 reported Internal error -- [process information not found]

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different collective operation counts
  28 ranks have launched up to operation 12
  Rank 2 has launched up to operation 11 -- GPU 2 managed by process 12 on node 192.0.2.10

"""


def recorded(name: str) -> str:
    """Return a recorded answer of NCCL 2.28.9."""
    return (SAMPLES / "ras" / name).read_text()
