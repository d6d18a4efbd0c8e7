"""Output of InfiniBand tools on a simulated fabric: two leaves, a spine, four nodes of two adapters."""

from __future__ import annotations

from typing import Any

import pytest

from fabtui.importers.catalogue import formats
from fabtui_node.parsers.base import Reading
from fabtui_node.parsers.ib import fabric, management

from .places import sample


def links(reading: Reading) -> dict[tuple[str, int], dict[str, Any]]:
    return {(link["name"], link["port"]): link for link in reading.values["links"]}


@pytest.mark.parametrize(("name", "ports"), [("ibnetdiscover.txt", 24), ("ibnetdiscover_ports.txt", 56)])
def test_the_two_forms_of_a_topology_agree(name: str, ports: int) -> None:
    reading = fabric.parse_topology(sample(f"ibsim/{name}"))
    assert (len(reading.values["links"]), reading.warnings, reading.unknown) == (ports, [], [])
    link = links(reading)["n063 mlx5_1", 1]
    assert link == {
        "type": "CA",
        "name": "n063 mlx5_1",
        "guid": "0x000000000010000f",
        "lid": 11,
        "port": 1,
        "lanes": 1,
        "speed": "HDR",
        "rate": 50.0,
        "peer": {"type": "switch", "name": "leaf2", "guid": "0x0000000000200001", "lid": 3, "port": 4},
    }
    assert links(reading)["spine1", 2]["peer"]["name"] == "leaf1"
    assert links(reading)["spine1", 2]["rate"] == 100.0


def test_a_topology_file_has_nodes() -> None:
    values = fabric.parse_topology(sample("ibsim/ibnetdiscover.txt")).values
    assert values["from_port"] == "0x0000000000100005"
    kinds = [node["type"] for node in values["nodes"]]
    assert (kinds.count("switch"), kinds.count("CA")) == (3, 8)
    assert values["nodes"][0] == {
        "type": "switch",
        "guid": "0x0000000000200001",
        "port_guid": "0x0000000000200001",
        "name": "leaf2",
        "ports": 16,
        "lid": 3,
        "system_guid": "0x0000000000200001",
        "vendor": "0x0",
        "device": "0x0",
        "chassis": None,
    }


def test_a_port_without_a_cable_has_no_rate() -> None:
    free = links(fabric.parse_topology(sample("ibsim/ibnetdiscover_ports.txt")))["leaf1", 14]
    assert (free["peer"], free["rate"], free["speed"]) == (None, None, "SDR")


@pytest.mark.parametrize("name", ["iblinkinfo_line.txt", "iblinkinfo_degraded_1x_edr.txt"])
def test_links_below_what_both_ends_can_do(name: str) -> None:
    reading = fabric.parse_links(sample(f"ibsim/{name}"))
    assert (reading.warnings, reading.unknown) == ([], [])
    below = {(end, port): link["below"] for (end, port), link in links(reading).items() if link["below"]}
    # All ports report 12X as possible; it has no meaning.
    assert below == {
        ("n063 mlx5_1", 1): ["width"],
        ("leaf2", 4): ["width"],
        ("leaf1", 16): ["speed"],
        ("spine1", 2): ["speed"],
    }
    slow = links(reading)["leaf1", 16]
    assert (slow["lane_rate"], slow["could_lane_rate"], slow["rate"]) == (25.78125, 53.125, 100.0)
    assert links(reading)["n060 mlx5_0", 1]["type"] == "CA"
    assert links(reading)["leaf1", 16]["type"] == "switch"


def test_a_pulled_cable_is_down_on_the_switch_and_missing_of_the_adapter() -> None:
    found = links(fabric.parse_links(sample("ibsim/iblinkinfo_after_unlink.txt")))
    assert ("n062 mlx5_1", 1) not in found
    port = found["leaf2", 3]
    assert (port["state"], port["physical_state"], port["peer"], port["rate"]) == ("Down", "Polling", None, None)


def test_a_fabric_that_answers_in_part() -> None:
    reading = fabric.parse_links(sample("ibsim/iblinkinfo_mad_loss60.txt"))
    assert any("timed out" in warning for warning in reading.warnings)
    assert reading.unknown == []
    lost = links(reading)["", 15]
    assert (lost["lanes"], lost["lane_rate"], lost["rate"], lost["below"]) == (None, None, None, [])


def test_errors_of_ports() -> None:
    values = fabric.parse_errors(sample("ibsim/ibqueryerrors_bad.txt")).values
    numbered = {(port["node"], port["port"]): port for port in values["ports"] if port["port"] != "ALL"}
    assert {key: port["counters"] for key, port in numbered.items()} == {
        ("n062 mlx5_1", 1): {"PortRcvErrors": 212},
        ("leaf2", 3): {"LinkDownedCounter": 3},
        ("spine1", 4): {"PortXmitDiscards": 65535, "PortXmitWait": 4000000000},
        ("leaf1", 2): {"SymbolErrorCounter": 1742, "LinkErrorRecoveryCounter": 7},
        ("n061 mlx5_0", 1): {"SymbolErrorCounter": 65535},
    }
    assert numbered["spine1", 4]["saturated"] == ["PortXmitDiscards"]
    assert numbered["n061 mlx5_0", 1]["saturated"] == ["SymbolErrorCounter"]
    assert (values["summary"]["bad_ports"], values["summary"]["ports_checked"], values["complete"]) == (5, 56, True)


def test_errors_with_data() -> None:
    values = fabric.parse_errors(sample("ibsim/ibqueryerrors_data.txt")).values
    first = values["ports"][0]
    assert first["counters"]["PortXmitData"] == 4680
    assert (first["guid"], first["extended"]) == ("0x000000000010000b", False)


def test_no_errors_is_not_nothing_known() -> None:
    values = fabric.parse_errors(sample("ibsim/ibqueryerrors_ok.txt")).values
    assert (values["ports"], values["complete"], values["summary"]["bad_nodes"]) == ([], True, 0)
    assert fabric.parse_errors("").values["complete"] is False


def test_counters_of_a_port() -> None:
    (block,) = management.parse_counters(sample("ibsim/perfquery_leaf1_p2.txt")).values["blocks"]
    assert (block["title"], block["lid"], block["port"], block["extended"]) == ("Port counters", 2, 2, False)
    assert (block["counters"]["SymbolErrorCounter"], block["counters"]["PortXmitWait"]) == (1742, 0)
    assert "PortSelect" not in block["counters"]
    (block,) = management.parse_counters(sample("ibsim/perfquery_saturated.txt")).values["blocks"]
    assert block["saturated"] == ["SymbolErrorCounter"]
    (block,) = management.parse_counters(sample("ibsim/perfquery_x.txt")).values["blocks"]
    assert (block["extended"], block["saturated"]) == (True, [])


def test_no_counters_are_not_zero() -> None:
    reading = management.parse_counters("")
    assert (reading.values, reading.warnings) == ({"blocks": []}, ["there are no counters in the text"])


def test_the_subnet_manager() -> None:
    values = management.parse_manager(sample("ibsim/sminfo.txt")).values
    wanted = {"lid": 1, "guid": "0x0000000000100001", "activity": 321, "priority": 0, "state": "MASTER"}
    assert values == {"sm": wanted}
    reading = management.parse_manager(sample("ibsim/sminfo_from_unlinked.txt"))
    assert (reading.values, len(reading.warnings)) == ({"sm": None}, 2)


def test_records() -> None:
    (record,) = management.parse_records(sample("ibsim/saquery_nodes.txt")).values["records"]
    assert record["record"] == "NodeRecord"
    assert (record["fields"]["lid"], record["fields"]["NodeDescription"]) == (1, "n060 mlx5_0")


def test_a_path_record_is_decoded() -> None:
    text = "PathRecord dump:\n\t\tdlid.........8\n\t\tmtu..........0x84\n\t\trate.........0x91\n"
    (record,) = management.parse_records(text).values["records"]
    assert (record["fields"]["dlid"], record["mtu_bytes"], record["rate_gbps"]) == (8, 2048, 200.0)
    (record,) = management.parse_records("PathRecord dump:\n\t\tmtu.....................what\n").values["records"]
    assert (record["mtu_bytes"], record["rate_gbps"]) == (None, None)


def test_port_info() -> None:
    (block,) = management.parse_attributes(sample("ibsim/smpquery_portinfo.txt")).values["blocks"]
    assert (block["lid"], block["port"], block["fields"]["NeighborMTU"]) == (2, 16, 2048)
    reading = management.parse_attributes(sample("ibsim/ibportstate_edr_port.txt"))
    (block,) = reading.values["blocks"]
    assert block["of"] == "Switch PortInfo"
    assert block["link"] == {
        "state": "Active",
        "physical_state": "LinkUp",
        "lanes": 4,
        "lanes_supported": [1, 2, 4, 8, 12],
        "lanes_enabled": [1, 4],
        "lane_rate": 25.78125,
        "lane_rates_supported": [2.5, 5.0, 10.0, 14.0625, 25.78125, 53.125],
        "lane_rates_enabled": [2.5, 5.0, 10.0, 14.0625, 25.78125],
        "rate": 100.0,
    }
    assert any("smp query nodeinfo failed" in warning for warning in reading.warnings)


def test_nodes_of_the_fabric() -> None:
    nodes = fabric.parse_nodes(sample("ibsim/ibnodes.txt")).values["nodes"]
    assert len(nodes) == 11
    assert [node["lid"] for node in nodes if node["type"] == "switch"] == [3, 4, 2]


def test_the_way_through_the_fabric() -> None:
    values = formats()["ibtracert"].parse(sample("ibsim/ibtracert.txt")).values
    assert [hop["name"] for hop in values["hops"]] == ["leaf1", "spine1", "leaf2", "n063 mlx5_1"]
    assert [(hop["out"], hop["in"]) for hop in values["hops"]] == [(1, 1), (16, 2), (4, 16), (4, 1)]
    assert (values["from"]["lid"], values["to"]["lid"]) == (1, 11)


def test_a_ping_without_answers_has_no_times() -> None:
    values = formats()["ibping"].parse(sample("ibsim/ibping_no_answer.txt")).values
    assert (values["sent"], values["received"], values["loss"], values["rtt_avg"]) == (3, 0, 100.0, None)


def test_a_forwarding_table() -> None:
    values = formats()["ibroute"].parse(sample("ibsim/ibroute_leaf1.txt")).values
    assert (values["switch"]["name"], values["count"], len(values["routes"])) == ("leaf1", 11, 11)
    assert values["routes"][6] == {
        "lid": 7,
        "port": 16,
        "type": "Channel Adapter",
        "guid": "0x0000000000100007",
        "name": "n061 mlx5_1",
    }
    assert formats()["ibaddr"].parse(sample("ibsim/ibaddr.txt")).values["lid_start"] == 6
