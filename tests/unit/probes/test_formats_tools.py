"""Forms of the tools' outputs that no kept sample shows: written after the sources of the tools."""

from __future__ import annotations

import pytest

from fabtui.importers.catalogue import formats
from fabtui_node.parsers.ib import fabric, management, rdma_ports
from fabtui_node.parsers.net import ethtool

from .places import sample


def test_ibstat_of_one_port_of_another_kind() -> None:
    text = "Switch: 'mlx4_0'\nPort 1:\nState: Active\nPhysical state: LinkUp\nRate: 40 (FDR10)\nEffective speed: 38.5\n"
    (ca,) = rdma_ports.parse_ibstat(text).values["cas"]
    assert (ca["ports"][0]["rate"], ca["ports"][0]["effective_rate"]) == (40.0, 38.5)


def test_ibstat_lists() -> None:
    assert rdma_ports.parse_ibstat("mlx5_0\nmlx5_1\n").values == {
        "cas": [],
        "port_guids": [],
        "names": ["mlx5_0", "mlx5_1"],
    }
    assert rdma_ports.parse_ibstat(sample("ibsim/ibstat_p.txt")).values["port_guids"] == ["0x0000000000100005"]


def test_ibstatus_of_what_cannot_be_read() -> None:
    text = "Infiniband device 'a' port 1 status:\n\tdefault gid:\t unknown\n\trate:\t\t unknown\n\tstate:\t\t unknown\n"
    (port,) = rdma_ports.parse_ibstatus(text).values["ports"]
    assert (port["gid"], port["rate"], port["state"], port["lid"]) == (None, None, "unknown", None)
    assert rdma_ports.parse_ibstatus(sample("ibsim/ibstatus.txt")).warnings == ["Fatal error:  No devices"]


VERBOSE = """\
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tnode_guid:\t\t\t946d:ae03:0063:0bfe
\tphys_port_cnt:\t\t\t1
\tmax_qp:\t\t\t\t131072
\tdevice_cap_flags:\t\t0x25321c36
\t\t\t\t\tBAD_PKEY_CNTR
\trc_odp_caps:
\t\t\t\t\tSUPPORT_SEND
\tcore clock not supported
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tlink_layer:\t\tEthernet
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
\t\t\tphys_state:\t\tLINK_UP (5)
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:966d:aeff:fe63:0bfe, RoCE v1
\t\t\tGID[  3]:\t\t::ffff:10.0.0.1, RoCE v2
"""


def test_ibv_devinfo_verbose() -> None:
    reading = rdma_ports.parse_devinfo(VERBOSE)
    (device,) = reading.values["devices"]
    (port,) = device["ports"]
    assert reading.unknown == []
    assert (device["node_guid"], device["attributes"]["max_qp"]) == ("0x946dae0300630bfe", "131072")
    assert (port["active_mtu"], port["max_mtu"], port["lanes"], port["lane_rate"]) == (1024, 4096, 4, 100.0)
    assert (port["state"], port["physical_state"]) == ("Active", "LinkUp")
    assert port["gids"][1] == {"index": 3, "gid": "::ffff:10.0.0.1", "type": "RoCE v2"}


def test_ibv_devinfo_of_an_unknown_mtu() -> None:
    text = VERBOSE.replace("1024 (3)", "invalid MTU (0)").replace("100.0 Gbps (128)", "invalid speed (0)")
    (port,) = rdma_ports.parse_devinfo(text).values["devices"][0]["ports"]
    assert (port["active_mtu"], port["lane_rate"]) == (None, None)


def test_ibv_lists() -> None:
    listed = rdma_ports.parse_devinfo("2 HCAs found:\n\tmlx5_0\n\tmlx5_1\n\n").values["devices"]
    assert listed == [{"ca": "mlx5_0", "ports": None}, {"ca": "mlx5_1", "ports": None}]
    text = (
        "    device          \t   node GUID\n    ------          \t----------------\n"
        "    mlx5_0          \t946dae0300630bfe\n"
    )
    assert rdma_ports.parse_devices(text).values["devices"] == [{"ca": "mlx5_0", "node_guid": "0x946dae0300630bfe"}]


@pytest.mark.parametrize(
    "text",
    [
        "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49151 lmc 0 state ACTIVE"
        " physical_state LINK_UP\n",
        "1/1: mlx5_0/1: subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49151 lmc 0 state"
        " ACTIVE physical_state LINK_UP \n"
        "    caps: <AUTO_MIG> \n",
        '[{"ifindex":0,"ifname":"mlx5_0","port":1,"subnet_prefix":"fe80:0000:0000:0000","lid":13399,"sm_lid":49151,'
        '"lmc":0,"state":"ACTIVE","physical_state":"LINK_UP"}]',
    ],
)
def test_rdma_link_of_infiniband(text: str) -> None:
    reading = rdma_ports.parse_rdma_link(text)
    assert reading.unknown == []
    assert reading.values["links"] == [
        {
            "ca": "mlx5_0",
            "port": 1,
            "state": "Active",
            "physical_state": "LinkUp",
            "netdev": None,
            "netdev_index": None,
            "lid": 13399,
            "sm_lid": 49151,
            "lmc": 0,
            "subnet_prefix": "fe80:0000:0000:0000",
        }
    ]


def test_a_gid_table_that_was_cut() -> None:
    text = "DEV\tPORT\tINDEX\tGID\nmlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv2\teth0\n"
    reading = rdma_ports.parse_gids(text)
    assert reading.warnings == ["the text ends before the number of GIDs"]
    assert reading.values["roce_v2_ipv4"] == [{"ca": "mlx5_0", "port": 1, "index": 3, "ipv4": "10.0.0.1"}]
    assert rdma_ports.parse_gids(text + "n_gids_found=4\n").warnings == ["1 of 4 GIDs are in the text"]


GROUPED = """\
# Topology file: generated on Mon Jan  5 10:00:00 2026
#
# Initiated from node 946dae0300630bfe port 946dae0300630bfe
#
Chassis 1 (guid 0x2c9000000)

# Spine Nodes
vendid=0x2c9
devid=0xd2f2
sysimgguid=0xfc6a1c0300000000\t\t# Chassis 1
switchguid=0xfc6a1c0300000000(fc6a1c0300000000)\t# Spine 1 Chip 1
Switch\t65 "S-fc6a1c0300000000"\t\t# "MF0;spine 1:MQM9700/U1" enhanced port 0 lid 7 lmc 0
[1][ext 1]\t"H-946dae0300630bfe"[1](946dae0300630bff) \t\t# "n061 mlx5_0" lid 9 4xNDR s=0 w=2 v=4
[3]\t"S-0000000000000002"[4]\t\t# "other" lid 3 2x???
"""


def test_a_topology_with_chassis_and_full_info() -> None:
    reading = fabric.parse_topology(GROUPED)
    node = reading.values["nodes"][0]
    first, second = reading.values["links"]
    assert reading.unknown == []
    assert (node["name"], node["chassis"], node["lid"]) == ("MF0;spine 1:MQM9700/U1", 1, 7)
    assert (first["peer"]["guid"], first["rate"], first["lid"]) == ("0x946dae0300630bff", 400.0, 7)
    assert (second["lanes"], second["speed"], second["rate"]) == (2, None, None)


NDR = (
    '0x946dae0300630bff "              n061 mlx5_0"      9    1[  ] ==( 2X        106.25 Gbps Active/  LinkUp)==>  '
    '0xfc6a1c0300000000      7   33[ 2] "MF0;spine" (Could be 4X Could be 212.5 Gbps)\n'
)


def test_what_links_could_be() -> None:
    (link,) = fabric.parse_links(NDR).values["links"]
    assert (link["rate"], link["could_lanes"], link["could_lane_rate"]) == (200.0, 4, 212.5)
    assert link["below"] == ["width", "speed"]
    assert link["peer"] == {"name": "MF0;spine", "guid": "0xfc6a1c0300000000", "lid": 7, "port": 33}
    slow = NDR.replace("2X        106.25 Gbps", "4X          10.0 Gbps").replace(
        "(Could be 4X Could be 212.5 Gbps)", "( Could be FDR10 (Found link at QDR but expected speed is FDR10))"
    )
    (link,) = fabric.parse_links(slow).values["links"]
    assert (link["could_lane_rate"], link["below"]) == (10.0, ["speed"])


def test_links_with_switch_settings() -> None:
    text = NDR.replace("LinkUp)==>", "LinkUp) (HOQ:18 VL_Stall:7)==>")
    assert fabric.parse_links(text).values == fabric.parse_links(NDR).values


def test_a_port_whose_peer_did_not_answer() -> None:
    text = (
        "Switch: 0x0000000000200002 spine1:\n  4  4[  ] ==( 4X 53.125 Gbps Active/ "
        ' LinkUp)==>      "Port not available"\n'
    )
    (link,) = fabric.parse_links(text).values["links"]
    assert (link["peer"], link["rate"], link["guid"]) == (None, 200.0, "0x0000000000200002")


def test_error_reports_with_link_info_and_failures() -> None:
    text = (
        'Errors for 0xe41d2d030031e9c1 "a [b] \\"c"\n'
        "   GUID 0xe41d2d030031e9c1 port 12: [SymbolErrorCounter == 70000 (68.359K)] [PortXmitData == 9 (36.000B)]\n"
        '       Link info:      1  12[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==>  0x1 2 1[  ] "x" ( )\n'
        "Query SA failed: Connection timed out; sa call path_query failed\n"
        "## Summary: 4 nodes checked, 1 bad nodes found\n"
        "##          9 ports checked, 1 ports have errors beyond threshold\n"
        "## Thresholds: [SymbolErrorCounter = 10]\n##          2 PMA query failures\n## Suppressed: PortXmitWait\n"
    )
    reading = fabric.parse_errors(text)
    (port,) = reading.values["ports"]
    assert (port["counters"]["SymbolErrorCounter"], port["extended"], port["saturated"]) == (70000, True, [])
    assert reading.values["summary"]["query_failures"] == 2
    assert reading.values["summary"]["thresholds"] == {"SymbolErrorCounter": 10}
    assert reading.values["summary"]["suppressed"] == ["PortXmitWait"]
    assert reading.warnings == ["Query SA failed: Connection timed out; sa call path_query failed"]


def test_counters_by_their_old_names() -> None:
    text = (
        "# Port counters: Lid 6 port 255\nPortSelect:......................255\n"
        "SymbolErrors:....................65535\n"
    )
    (block,) = management.parse_counters(text).values["blocks"]
    assert (block["port"], block["saturated"]) == (255, ["SymbolErrors"])


def test_nodes_with_their_device_ids() -> None:
    text = 'Switch\t : 0xfc6a1c0300000000 ports 65 devid 0xd2f2 vendid 0x2c9 "MF0;leaf:MQM9700/U1"\n'
    (node,) = fabric.parse_nodes(text).values["nodes"]
    assert (node["device"], node["vendor"], node["name"]) == ("0xd2f2", "0x2c9", "MF0;leaf:MQM9700/U1")


def test_a_short_way() -> None:
    text = "From {0x0000000000100000}[1]\n[1] -> {0x0000000000200000}[1]\nTo {0x000000000010000e}[1]\n"
    values = formats()["ibtracert"].parse(text).values
    assert (values["from"]["port"], values["hops"][0]["out"], values["to"]["guid"]) == (1, 1, "0x000000000010000e")


def test_a_switchs_vitals_and_status() -> None:
    text = (
        "uptime (sec)       : 16982312\npsu0.power (W)     : 92\ncur.temp (C)       : 73\nmax.temp (C)       : 80\n"
        "QSFP#01.temp (C)   : 44\nfan#1.speed (rpm)  : 6355\npsu1.status        : ERROR\nfans               : OK\n"
    )
    reading = formats()["ibswinfo"].parse(text)
    values = reading.values
    assert reading.unknown == []
    assert (values["uptime"], values["temperature"], values["temperature_max"]) == (16982312.0, 73.0, 80.0)
    assert (values["psus"], values["fans"], values["modules"]) == (
        {"0": {"power": 92.0}, "1": {"status": "ERROR"}},
        {"1": 6355.0},
        {"1": 44.0},
    )
    assert values["fan_status"] == "OK"


def test_an_interface_without_a_link() -> None:
    text = (
        "Settings for eth1:\n\tSupported link modes:   25000baseCR/Full\n\t                        100000baseCR4/Full\n"
        "\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n\tAuto-negotiation: on\n\tLink detected: no (No cable)\n"
    )
    (found,) = ethtool.parse(text).values["interfaces"]
    assert (found["speed"], found["fastest"], found["duplex"]) == (None, 100000, None)
    assert (found["link"], found["why"]) == ("no", "No cable")
    reading = ethtool.parse("netlink error: No such device\n")
    assert (reading.values, reading.warnings) == ({"interfaces": []}, ["netlink error: No such device"])


def test_pause_driver_and_counters() -> None:
    text = "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\nRX negotiated: on\n"
    (pause,) = ethtool.parse_pause(text).values["interfaces"]
    assert (pause["autoneg"], pause["rx"], pause["tx"], pause["tx_negotiated"]) == ("off", "on", "off", None)
    text = (
        "driver: mlx5_core\nversion: 24.04-0.6.6\n"
        "firmware-version: 28.39.2048 (MT_0000000838)\nexpansion-rom-version: \n"
    )
    values = ethtool.parse_driver(text + "bus-info: 0000:18:00.0\nsupports-test: yes\n").values
    assert (values["driver"], values["firmware"], values["bus"]) == (
        "mlx5_core",
        "28.39.2048 (MT_0000000838)",
        "0000:18:00.0",
    )
    text = (
        "NIC statistics:\n     rx_discards_phy: 12\n     [0]: rx_packets: 5\n"
        "     rx_prio3_pause: 18446744073709551615\n"
    )
    reading = ethtool.parse_statistics(text)
    assert reading.unknown == []
    assert reading.values["counters"] == {"rx_discards_phy": 12, "[0]: rx_packets": 5, "rx_prio3_pause": 2**64 - 1}


def test_a_module() -> None:
    text = (
        "\tIdentifier                                : 0x18 (QSFP-DD Double Density 8X Pluggable"
        " Transceiver (INF-8628))\n"
        "\tVendor name                               : Mellanox\n"
        "\tVendor PN                                 : MCP7Y00\n"
        "\tModule temperature                        : 45.20 degrees C / 113.36 degrees F\n"
        "\tModule temperature high alarm threshold   : 80.00 degrees C / 176.00 degrees F\n"
        "\tRcvr signal avg optical power(Channel 1)  : 0.9114 mW / -0.40 dBm\n"
        "\tModule temperature high alarm             : Off\n\tLaser rx power low alarm                  : On\n"
    )
    values = ethtool.parse_module(text).values
    assert (values["vendor"], values["temperature"], values["rx_power"]) == ("Mellanox", 45.2, [0.9114])
    assert values["alarms"] == ["Laser rx power low alarm"]


def test_crossed_out_ids() -> None:
    text = (
        "vendid=0x2c9\nsysimgguid=0x9c05<redacted>\nswitchguid=0x9c05<redacted>(9c05<redacted>)\n"
        'Switch\t129 "S-9c05<redacted>"\t\t# "MF0;leaf:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n'
        '[1]\t"H-b83f<redacted>"[1](b83f<redacted>) \t\t# "node005 mlx5_2" lid 22 2xNDR\n'
    )
    reading = fabric.parse_topology(text)
    (link,) = reading.values["links"]
    assert reading.unknown == []
    assert (link["guid"], link["peer"]["guid"], link["peer"]["name"], link["rate"]) == (
        None,
        None,
        "node005 mlx5_2",
        200.0,
    )
    row = "roce0    1  3  fe80:0000:0000:0000:xxxx:xxxx:xxxx:xxxx   v2  eth0\nn_gids_found=1\n"
    (gid,) = rdma_ports.parse_gids(row).values["gids"]
    assert (gid["gid"], gid["version"], gid["netdev"]) == (None, 2, "eth0")


def test_a_topology_of_old_tools() -> None:
    text = 'Switch  24 "S-0008f104003f1e29"         # "sLB-2024" base port 0 lid 742 lmc 0\n'
    reading = fabric.parse_topology(text + '[24]    "H-0002c90200247010"[1]         # "atlas35" lid 1252\n')
    (link,) = reading.values["links"]
    assert reading.unknown == []
    assert (link["peer"]["lid"], link["lanes"], link["speed"], link["rate"]) == (1252, None, None, None)


def test_what_the_tool_of_the_vendors_package_prints_of_devices() -> None:
    more = (
        "\tlog atomic arg sizes (mask)\t\t0x8\n\tmax fetch and add bit boundary\t64\n\tMulti-Packet RQ supported\n"
        "\t\t\t2 bytes\n\tooo_rc_caps  = 0x0\n\t\t\t\t\tEXT_SEND NOP\n\ttag matching not supported\n"
    )
    reading = rdma_ports.parse_devinfo(VERBOSE.replace("\t\tport:", more + "\t\tport:", 1))
    assert reading.unknown == []
    attributes = reading.values["devices"][0]["attributes"]
    assert (attributes["log atomic arg sizes (mask)"], attributes["ooo_rc_caps"]) == ("0x8", "0x0")
    assert reading.values["devices"][0]["ports"][0]["active_mtu"] == 1024


def test_pause_with_statistics_and_a_state_that_is_not_known() -> None:
    text = (
        "Pause parameters for eth0:\nRX:\t\ton\nTX:\t\toff\nStatistics:\n  tx_pause_frames: 3\n  rx_pause_frames: 0\n"
    )
    reading = ethtool.parse_pause(text)
    assert reading.unknown == []
    assert (reading.values["interfaces"][0]["tx_frames"], reading.values["interfaces"][0]["rx_frames"]) == (3, 0)
    (link,) = rdma_ports.parse_rdma_link("0/2: ibp0s9/2: lid 13397 state UNKNOWN physical_state UNKNOWN\n").values[
        "links"
    ]
    assert (link["state"], link["physical_state"]) == ("unknown", "unknown")


def test_a_port_that_was_set() -> None:
    block = "# Port info: Lid 3 port 1\nLinkState:.......................Active\nLinkWidthActive:.................4X\n"
    text = (
        f"Initial CA/RT PortInfo:\n{block}# MLNX ext Port info: Lid 3 port 1\nLinkSpeedActive:.................0x00\n"
    )
    reading = management.parse_attributes(f"{text}Disable may be irreversible\n\nAfter PortInfo set:\n{block}")
    assert reading.unknown == []
    assert [found["of"] for found in reading.values["blocks"]] == ["Initial CA/RT PortInfo", None, "After PortInfo set"]
