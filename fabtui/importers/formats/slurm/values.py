"""Slurm's states, columns and keys, and their names here."""

from __future__ import annotations

#: What the sign after a node's state means (man sinfo).
SIGNS = {
    "*": "not responding",
    "~": "powered off",
    "#": "powering up",
    "!": "pending power down",
    "%": "powering down",
    "$": "in a maintenance reservation",
    "@": "pending reboot",
    "^": "rebooting",
    "-": "planned by backfill",
}
#: Short states of nodes, spelled out.
STATES = {
    "alloc": "allocated",
    "comp": "completing",
    "drng": "draining",
    "drain": "drained",
    "failg": "failing",
    "mix": "mixed",
    "plnd": "planned",
    "resv": "reserved",
    "unk": "unknown",
    "futr": "future",
}
#: What a state holds when something is wrong with the node.
BAD = ("down", "drain", "fail", "unk", "inval", "error", "no_respond", "perfctrs", "not_responding")
#: Short states of jobs, spelled out.
JOB_STATES = {
    "PD": "PENDING",
    "R": "RUNNING",
    "CG": "COMPLETING",
    "CD": "COMPLETED",
    "CA": "CANCELLED",
    "F": "FAILED",
    "TO": "TIMEOUT",
    "NF": "NODE_FAIL",
    "S": "SUSPENDED",
    "CF": "CONFIGURING",
    "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED",
    "DL": "DEADLINE",
    "RQ": "REQUEUED",
    "ST": "STOPPED",
}
#: What a letter of ``-o`` puts into a column, by tool.
LETTERS = {
    "sinfo": {
        "N": "NODELIST",
        "n": "HOSTNAMES",
        "P": "PARTITION",
        "R": "PARTITION",
        "T": "STATE",
        "t": "STATE",
        "G": "GRES",
        "E": "REASON",
        "D": "NODES",
        "a": "AVAIL",
        "l": "TIMELIMIT",
        "c": "CPUS",
        "m": "MEMORY",
        "f": "AVAIL_FEATURES",
        "u": "USER",
        "U": "USER",
        "H": "TIMESTAMP",
        "C": "CPUS(A/I/O/T)",
        "O": "CPU_LOAD",
        "e": "FREE_MEM",
        "w": "WEIGHT",
        "d": "TMP_DISK",
        "z": "S:C:T",
    },
    "squeue": {
        "i": "JOBID",
        "A": "JOBID",
        "j": "NAME",
        "T": "STATE",
        "t": "ST",
        "M": "TIME",
        "N": "NODELIST",
        "D": "NODES",
        "b": "TRES_PER_NODE",
        "r": "REASON",
        "R": "NODELIST(REASON)",
        "u": "USER",
        "P": "PARTITION",
        "l": "TIME_LIMIT",
        "L": "TIME_LEFT",
        "S": "START_TIME",
        "e": "END_TIME",
        "C": "CPUS",
        "m": "MIN_MEMORY",
        "Q": "PRIORITY",
        "a": "ACCOUNT",
        "q": "QOS",
        "V": "SUBMIT_TIME",
        "k": "COMMENT",
    },
}
#: Columns whose key is not their own name in small letters.
KEYS = {
    "nodelist": "nodelist",
    "nodelist(reason)": "nodelist_or_reason",
    "st": "state",
    "jobid": "job",
    "stepid": "step",
    "time_limi": "time_limit",
    "timelimit": "time_limit",
    "avail_fe": "features",
    "alloccpus": "cpus",
    "exitcode": "exit_code",
}
#: Columns of integers.
WHOLE = frozenset({"nodes", "cpus", "memory", "weight", "tmp_disk", "nnodes", "ntasks", "uid"})
#: What is kept of an entry of the JSON, by tool.
JSON_NAMES = {
    "sinfo": (
        "name",
        "state",
        "state_flags",
        "reason",
        "partitions",
        "gres",
        "gres_used",
        "cpus",
        "alloc_cpus",
        "real_memory",
        "alloc_memory",
        "address",
        "node",
        "nodes",
        "partition",
        "cluster",
    ),
    "squeue": (
        "job_id",
        "name",
        "job_state",
        "partition",
        "user_name",
        "nodes",
        "node_count",
        "state_reason",
        "tres_per_node",
        "start_time",
        "time_limit",
    ),
    "sacct": ("job_id", "name", "state", "partition", "account", "user", "nodes", "exit_code", "time"),
}
