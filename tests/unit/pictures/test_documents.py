"""Pictures of two known cases: GPUs that reach their own rail only, and pings over the segments of a cluster."""

import itertools

import pytest

from fabtui.importers.result import read
from fabtui.importers.sources import Source
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.model.session_model import Model
from fabtui.pictures.drawing import SCALE
from fabtui.pictures.heatmap import connectivity_scene, matrix_scene
from fabtui.pictures.scene import Scene, Tiles, colors, rgb
from fabtui.presentation.cell_levels import CellStyle

from .decoding import connectivity_png, decoded, matrix_png

GPUS, NODES = 8, 2
SEGMENTS = ("10.1.0", "10.1.1", "10.1.2", "10.1.3")
#: A node without a route in one segment, by cluster.
CUT = {"a": ("node-a2", "10.1.3"), "b": None}


def of_text(name: str, text: str) -> Model:
    return model_of([read(Source(name, text))])


def grid_of(scene: Scene) -> Tiles:
    return next(item for item in scene.items if isinstance(item, Tiles))


def slots_of(scene: Scene) -> list[list[str]]:
    tiles = grid_of(scene)
    return [[CellStyle(code).key for code in row] for row in tiles.codes.tolist()]


def pair_jobs() -> Model:
    """Two nodes of eight GPUs, one job per ordered pair: between the nodes only equal local ranks pass."""
    lines = []
    for src, dst in itertools.permutations(range(GPUS * NODES), 2):
        lines += [f"==> p2p-test-{src}-{dst}-100.out <=="]
        lines += [f"gpu0{rank // GPUS} [{rank}/16]" for rank in (src, dst)]
        passes = src // GPUS == dst // GPUS or src % GPUS == dst % GPUS
        lines += [f"gpu0{src // GPUS} [{src}] : OK {src} -> {dst}" if passes else "RuntimeError: NCCL error: remote"]
    return of_text("p2p-runs", "\n".join(lines) + "\n")


def ping_table(cluster: str) -> Model:
    """Four nodes of a cluster, each with an address in each of four segments."""
    nodes = [f"node-{cluster}{number}" for number in range(4)]
    lines = ["SourceNode,SourceIP,DestinationNode,DestinationIP,NetworkSegment,Status"]
    for segment in SEGMENTS:
        for src, dst in itertools.permutations(range(4), 2):
            cut = CUT[cluster] in [(nodes[end], segment) for end in (src, dst)]
            status = "Failure" if cut else "Success"
            lines.append(f"{nodes[src]},{segment}.{src + 1},{nodes[dst]},{segment}.{dst + 1},{segment},{status}")
    return of_text(f"{cluster}.csv", "\n".join(lines) + "\n")


def test_only_equal_local_ranks_pass_between_nodes() -> None:
    model = pair_jobs()
    found = slots_of(matrix_scene(model, "p2p", "verdict"))
    for src, dst in itertools.product(range(16), repeat=2):
        near = src // GPUS == dst // GPUS or src % GPUS == dst % GPUS
        assert found[src][dst] == ("diagonal" if src == dst else "good" if near else "failed"), (src, dst)


@pytest.mark.slow
def test_the_png_of_the_matrix_has_the_colours_in_the_right_places() -> None:
    model = pair_jobs()
    tiles = grid_of(matrix_scene(model, "p2p", "verdict"))
    image = decoded(matrix_png(model, "p2p"))
    # Left of its mark, each cell has the colour of its verdict.
    for row, column in itertools.product(range(16), repeat=2):
        x, y = ((start + (at + 0.15) * tiles.pitch) * SCALE for start, at in ((tiles.x, column), (tiles.y, row)))
        expected = rgb(colors()[CellStyle(int(tiles.codes[row, column])).key])
        assert image.at(round(x), round(y)) == expected, (row, column)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["a", "b"])
def test_pings_of_a_cluster_are_grouped_by_segment(cluster: str) -> None:
    model = ping_table(cluster)
    scene = connectivity_scene(model)
    found = slots_of(scene)
    for row, column in itertools.product(range(16), repeat=2):
        (segment, src), (other, dst) = divmod(row, 4), divmod(column, 4)
        cut = CUT[cluster] in [(f"node-{cluster}{end}", SEGMENTS[segment]) for end in (src, dst)]
        expected = "untested" if segment != other else "failed" if cut else "good"
        assert found[row][column] == ("diagonal" if row == column else expected), (row, column)
    assert f'"node-{cluster}0 10.1.0.0/24"' in scene.data["names"]
    assert decoded(connectivity_png(model)).colors() >= {rgb(colors()["good"]), rgb(colors()["paper"])}
