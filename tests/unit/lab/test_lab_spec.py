import msgspec
import pytest

from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.lab.lab import Lab, Order
from tests.unit.mistakes import mistakes


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("2x4", (4, 4)),
        (" 2 X 4 ", (4, 4)),
        ("1x1", (1,)),
        ("2,3", (2, 3)),
        ("5", (5,)),
        ("256x1", (1,) * 256),
        ("1,64", (1, 64)),
    ],
)
def test_shapes(text: str, endpoints: tuple[int, ...]) -> None:
    assert LabSpec.parse(text).endpoints == endpoints


def test_names() -> None:
    spec = LabSpec.parse("2,3")
    assert spec.names == ("n000", "n001")
    assert spec.nodes == {"n000": 2, "n001": 3}
    assert LabSpec.parse("256x1").names[-1] == "n255"


@pytest.mark.parametrize(("text", "word"), [*mistakes("lab"), (",".join(["1"] * 257), "257 nodes")])
def test_bad_shapes_are_reported_in_one_line(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word) as caught:
        LabSpec.parse(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 160


def test_order_survives_its_way() -> None:
    spec = LabSpec((2, 3))
    faults = parse_faults(["n001=dead-after:1.5", "n000=env:A=b"], spec)
    line = msgspec.json.encode(Lab(spec, faults).order)
    assert b"\n" not in line
    order = msgspec.json.decode(line, type=Order)
    assert (order.spec, parse_faults(order.faults, order.spec)) == (spec, faults)
    standing = Order(LabSpec((2, 2), 3, standing=True), "/folder")
    assert msgspec.json.decode(msgspec.json.encode(standing), type=Order) == standing
