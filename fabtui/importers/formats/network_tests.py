"""The pairs that perftest and iperf3 measured; probes read the same outputs on nodes."""

from __future__ import annotations

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.ib import perftest
from fabtui_node.parsers.net import iperf3

FORMATS = [
    *(form._replace(convert=benchmarks.perftest) for form in perftest.FORMATS),
    *(form._replace(convert=benchmarks.iperf3) for form in iperf3.FORMATS),
]
