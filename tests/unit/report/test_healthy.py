"""Text of a healthy set: the section of the summary, and the output of `fabtui nodes`."""

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.healthy_set import healthy_set
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.events import NodeState, NodeUpdate
from fabtui.model.session_model import Model
from fabtui.report.healthy import healthy_text
from fabtui.report.summary import summary
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric


def text_of(model: Model) -> str:
    tally = Survey(model).finish()
    found = healthy_set(model, tally, diagnose(model).findings)
    assert found is not None
    return healthy_text(model, found)


def advice(model: Model) -> list[str]:
    return next(
        (part.splitlines() for part in summary(diagnose(model)).split("\n\n") if part.startswith("what to do now")), []
    )


def test_the_summary_proposes_the_healthy_nodes_if_something_is_bad() -> None:
    assert advice(fabric("abc", 2, dead_if(lambda s, d: False))) == []
    assert advice(fabric("abc", 4, dead_if(lambda s, d: "b:2" in (s, d)))) == [
        "what to do now",
        "  2 of 3 nodes are healthy together, with 8 of 12 GPUs: --nodelist=a,c --exclude=b",
        "  also usable: b with CUDA_VISIBLE_DEVICES=0,1,3",
        "  to drain: scontrol update NodeName=b State=DRAIN "
        "Reason='fabtui: b:2 fails with all 11 others: check the GPU'",
        "  host file, rank order and more: fabtui nodes RECORDING",
    ]


def test_a_bad_rail_is_answered_with_fewer_gpus_per_node() -> None:
    lines = advice(fabric("abcd", 4, dead_if(lambda s, d: s[0] != d[0] and "3" in (s[2], d[2]))))
    assert lines[1].startswith("  no two nodes work together; largest healthy set: a (4 of 16 GPUs): --nodelist=a ")
    assert lines[2] == "  with fewer GPUs per node: 12 of 16 GPUs"
    assert len(lines) <= 5


def test_the_whole_text() -> None:
    text = text_of(fabric("abcde", 2, dead_if(lambda s, d: "b:1" in (s, d))))
    assert text.splitlines() == [
        "4 of 5 nodes are healthy together, with 8 of 10 GPUs",
        "",
        "left out",
        "  b  b:1 fails with all 9 others: check the GPU",
        "",
        "Slurm",
        "  srun --nodes=4 --nodelist=a,c,d,e --exclude=b",
        "",
        "to drain the nodes that findings blame (check first; fabtui does not run this)",
        "  scontrol update NodeName=b State=DRAIN Reason='fabtui: b:1 fails with all 9 others: check the GPU'",
        "",
        "slowest hop of a ring over the nodes, between their fastest NICs",
        "  45.0 GB/s (a - c) in the given order; no better order was found",
        "",
        "also usable with some of their GPUs, which work with all nodes above and with each other",
        "  b  slots=1 CUDA_VISIBLE_DEVICES=0",
        "",
        "host file, in rank order: --hostfile FILE",
    ]


def test_nothing_healthy_and_one_node_read_well() -> None:
    text = text_of(fabric("abc", 2, dead_if(lambda s, d: True)))
    assert text.startswith("none of 3 nodes is healthy with all its GPUs\n\nleft out\n")
    assert text_of(fabric("a", 2, dead_if(lambda s, d: False))).startswith("1 of 1 node is healthy, with 2 of 2 GPUs\n")


def test_hostile_names_and_reasons_stay_on_their_line() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: False))
    evil = "$(reboot)'\x1b[31m\nNodeName=all"
    model.apply(NodeUpdate(node=evil, state=NodeState.FAILED, text=evil, time=3.0))
    text = text_of(model)
    assert "\x1b" not in text
    assert "\nNodeName" not in text
    (line,) = (line for line in text.splitlines() if "scontrol" in line)
    assert line.startswith(
        "  scontrol update NodeName='$(reboot)'\"'\"'[31m NodeName=all' State=DRAIN Reason='fabtui: "
    )
