"""Options of a connector, from those of a session."""

from __future__ import annotations

from typing import Any

from fabtui.session.options import SessionOptions
from fabtui.transport.connector import ConnectorOptions


def connector_options(options: SessionOptions, **more: Any) -> ConnectorOptions:
    """Return the options that reach the nodes of a session; ``more`` adds others or replaces some."""
    shared = {
        "transport": options.transport,
        "ssh_config": options.ssh_config,
        "remote_python": options.remote_python,
        "host_key_policy": options.host_key_policy,
        "connect_timeout": options.connect_timeout,
        "lease": options.lease,
        "fallback": options.fallback,
        "job": options.job,
        "placements": options.placements,
        "srun_tree": options.srun_tree,
        "via": options.via,
        "wrap": options.wrap,
    }
    return ConnectorOptions(**{**shared, **more})
