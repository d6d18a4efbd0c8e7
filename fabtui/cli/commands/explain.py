"""``fabtui explain``: rules, known errors, and the causes in logs of NCCL and PyTorch; offline."""

from __future__ import annotations

import argparse
import shutil
import sys

from fabtui.cli.printing import print_text
from fabtui.diagnosis.diagnosis import RULES
from fabtui.diagnosis.knowledge.failure_stage import explained_errors
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD
from fabtui.report.explained import explained, listed
from fabtui.report.text import text

HELP = """\
Explain rules, errors of NCCL or CUDA, Xids, transports, logs and outputs of commands, offline.

examples:
  fabtui explain FT012                         a rule, by code or name
  fabtui explain E13                           an error of the catalogue
  fabtui explain xid 79                        an Xid of NVIDIA's catalogue
  fabtui explain NET/IB/0/GDRDMA               a transport, as NCCL prints it
  fabtui explain NCCL_P2P_LEVEL                a variable of NCCL, with its values
  fabtui explain vendor err 129                CUDA error 401, status=12, errno 110, sxid 12028
  fabtui explain 'ibv_modify_qp failed with error Connection timed out'
  fabtui explain rank*.log                     logs of one job: the earliest cause first
  fabtui explain nvlink.txt dmesg.txt          outputs of commands: what is wrong on the node
  srun ... 2>&1 | fabtui explain -             read standard input
  fabtui explain --list                        all rules and errors

exit codes: 0 explained; 1 unknown, or no failure in a log; 2 bad usage or input
"""


def execute(args: argparse.Namespace) -> int:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    words = [word for word in getattr(args, "what", []) if word.strip()]
    if "list" in args:
        print_text(text(listed(RULES, explained_errors()), width))
        return ALL_OK
    if not words:
        usage = "fabtui explain CODE, TEXT or FILE..., - for standard input, --list for all codes"
        raise InputError(f"nothing to explain; {usage}")
    meaning = explained(words)
    for notice in meaning.notices:
        print(f"fabtui: {notice}", file=sys.stderr)
    print_text(text(meaning.blocks, width))
    return ALL_OK if meaning.known else BAD
