import os
import time
from pathlib import Path

import pytest

from fabtui.diagnosis.job.logs import job_logs
from fabtui.diagnosis.job.logs.error_lines import ErrorLines
from fabtui.diagnosis.job.logs.gpu_history import GpuHistory
from fabtui.diagnosis.job.logs.iteration_times import IterationTimes
from fabtui.diagnosis.job.logs.job_logs import FileClock, JobLogs
from fabtui.diagnosis.job.logs.settings import Settings
from fabtui_node.system import log_files

from .job_texts import gpustat, healthy, iteration, settings

BUDGET = log_files.Budget(1 << 20, 1 << 20)


def read_on(logs: JobLogs, folder: Path, now: float = 1.0, budget: log_files.Budget = BUDGET) -> list[str]:
    parts, problems = log_files.read(log_files.Search(9.0).find([f"{folder}/*"]), logs.known(""), budget)
    logs.take("", parts, now)
    return problems


@pytest.mark.parametrize("step", [5, 100, 5000])
def test_a_file_that_grows_is_read_like_a_whole_one(tmp_path: Path, step: int) -> None:
    text = (
        settings(0) + iteration(10, 4000.0) + "é\x1b[31m10%\r20%\r30%\nlast" + "\n" * 2 + iteration(20, 1400.0)
    ).encode()
    path = tmp_path / "n060.out"
    logs = JobLogs(["n060"])
    for end in range(0, len(text) + step, step):
        path.write_bytes(text[:end])
        read_on(logs, tmp_path)
    file = logs.files["", str(path)]
    assert file.lines == text.count(b"\n")
    assert [(one.number, one.seconds) for one in logs.iterations.all] == [(10, 4.0), (20, 1.4)]
    assert logs.settings.of["n060"]["DP_SIZE"] == "4"
    assert file.tail()[-3:-1] == ["30%", "last"]
    assert file.skipped == 0


def test_a_truncated_file_and_a_rotated_one_start_again(tmp_path: Path) -> None:
    path = tmp_path / "n060.out"
    path.write_text("a\nb\nc\n")
    logs = JobLogs(["n060"])
    read_on(logs, tmp_path)
    path.write_text("d\n")
    read_on(logs, tmp_path)
    file = logs.files["", str(path)]
    assert (file.lines, file.tail()) == (1, ["d"])
    with path.open("a") as old:
        old.write("RuntimeError: CUDA error: before the rotation\n")
        path.rename(tmp_path / "n060.out.1")
        path.write_text("e\n")
    parts, _ = log_files.read([str(path)], logs.known(""), BUDGET)
    logs.take("", parts, 2.0)
    assert (file.lines, file.tail(), file.errors.count) == (1, ["e"], 1)


def test_of_a_large_file_the_start_and_the_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "n060.out"
    path.write_text(settings(0) + "filler line\n" * 200_000 + iteration(40, 1400.0))
    logs = JobLogs(["n060"])
    read_on(logs, tmp_path, budget=log_files.Budget(50_000, 100_000))
    file = logs.files["", str(path)]
    assert logs.settings.of["n060"]["NODE_RANK"] == "0"
    assert logs.iterations.latest is not None
    assert file.skipped > 2_000_000
    assert logs.lines("out") == (file.lines, False)
    assert file.lines < 5000
    with path.open("a") as more:
        more.write("filler line\n" * 400_000)
    # A writer that is faster than the reader does not leave it behind.
    for _ in range(3):
        read_on(logs, tmp_path, budget=log_files.Budget(50_000, 100_000))
    assert file.known is not None
    assert file.known.offset == path.stat().st_size


def test_what_is_no_file_is_left_alone_and_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n060.out")
    (tmp_path / "n060.err").symlink_to(tmp_path / "nowhere")
    (tmp_path / "n060.d").mkdir()
    logs = JobLogs(["n060"])
    assert read_on(logs, tmp_path) == [f"{tmp_path}/n060.err: No such file or directory"]
    assert not logs.files


def test_hostile_bytes_take_neither_time_nor_memory(tmp_path: Path) -> None:
    path = tmp_path / "n060.err"
    for filler in (
        b"\xff\x00" * 400_000,
        b"error: " * 150_000,
        b"[0] NVIDIA" + b" " * 900_000,
        b"iteration 1/" + b"9 |" * 300_000,
    ):
        path.write_bytes(filler + b"\nNODE_RANK: 0\n")
        logs = JobLogs(["n060"])
        began = time.process_time()
        for _ in range(4):
            read_on(logs, tmp_path)
        assert time.process_time() - began < 5
        assert sum(map(len, logs.files["", str(path)].tail())) < 500_000
        assert logs.settings.of["n060"] == {"NODE_RANK": "0"}


def test_the_warm_up_is_kept_apart_and_a_restart_has_its_own() -> None:
    times = IterationTimes()
    for number, milliseconds in ((10, 4541.6), (20, 1401.5), (30, 1423.8), (40, 1373.9), (50, 1409.8)):
        times.take(iteration(number, milliseconds))
        times.take(iteration(number, milliseconds))
    assert times.median == pytest.approx(1.40565)
    assert times.warm_up is not None
    assert times.warm_up.number == 10
    assert times.slow == []
    assert times.interval == pytest.approx(14.0565)
    times.take(iteration(30, 5000.0))
    assert (times.restarts, times.warm_up.number, times.slow) == (1, 30, [])
    times.take(iteration(40, 3000.0))
    assert [one.number for one in times.slow if one.seconds == 3.0] == [40]
    # A number that is cut off is not believed.
    cut = IterationTimes()
    cut.take(" iteration       10/      50 | elapsed time per iteration (ms): 14")
    assert cut.latest is not None
    assert cut.latest.seconds is None
    assert cut.median is None


def test_gpus_without_dates_count_by_samples_and_strange_values_are_unknown() -> None:
    history = GpuHistory()
    for line in gpustat("n060", 40, busy=False, dated=False).splitlines():
        history.take_line(line)
    assert history.idle_samples == 39
    assert history.idle_since is None
    history.take_line("[0] NVIDIA A10       | 61'C,  ?? %,   88 / 150 W | ????? / 22731 MB | me(13980M)")
    history.take_line("x")
    assert history.latest is not None
    assert len(history.latest.gpus) == 4
    history.take_line("[0] NVIDIA A10       | 61'C,  12 %,   88 / 150 W |     1 / 22731 MB |")
    (gpu,) = history._complete.gpus if history._complete is not None else ()
    assert (gpu.utilization, gpu.used, gpu.power, gpu.busy) == (None, None, 88.0, True)


def test_words_of_a_log_are_no_settings() -> None:
    found = Settings()
    for line in (
        *("NODE_RANK: 1", "export WORLD_SIZE=8", "WARNING: x", "INFO: y", "SIZE==3"),
        *("[rank3]: DP_SIZE: 2", "MODEL: "),
    ):
        found.take("n060", line)
    assert found.of == {"n060": {"NODE_RANK": "1", "WORLD_SIZE": "8", "DP_SIZE": "2", "MODEL": ""}}


def test_ages_do_not_depend_on_the_clock_of_the_file_server() -> None:
    clock = FileClock()
    clock.see(modified=5000.0, now=1000.0, grew=False)
    assert clock.age(4990.0, 1000.0) == 10
    # Its clock is an hour ahead, as a file that grows shows.
    clock.see(modified=4602.0, now=1002.0, grew=True)
    assert clock.age(4590.0, 1010.0) == pytest.approx(20.0)
    late = FileClock()
    late.see(modified=100.0, now=1000.0, grew=True)
    assert late.age(100.0, 1060.0) == 60


@pytest.mark.parametrize(
    ("path", "node", "stream"),
    [
        ("/l/n060.out", "n060", "out"), ("/l/n060.err", "n060", "err"), ("/l/12.n061.gpu", "n061", "gpu"),
        ("/l/12_n061-3.stderr", "n061", "err"), ("/l/slurm-12.out", "", "out"), ("/l/12.sbatch.n060.err", "", "err"),
        ("/l/node-1.out", "node-1", "out"), ("/l/train_node-1_err.log", "node-1", "err"), ("/l/n0601.out", "", "out"),
    ],
)  # fmt: skip
def test_names_of_files_say_whose_they_are(path: str, node: str, stream: str) -> None:
    nodes = ["n060", "n061.cluster", "node-1"]
    found = job_logs.node_of(path, nodes)
    assert (found.partition(".")[0], job_logs.stream_of(path)) == (node, stream)


def test_other_files_of_a_folder_are_no_logs() -> None:
    names = ("events.out.tfevents.1.n060", "ckpt-12.tar", "run.sh", "n060.out.1", "x.safetensors")
    assert [name for name in (*names, "n060.out", "12.txt", "n060-12") if job_logs.is_log(f"/l/{name}")] == [
        "n060.out", "12.txt", "n060-12"
    ]  # fmt: skip


def test_templates_and_the_names_of_slurm_become_patterns() -> None:
    fields = {"j": "12", "u": "me", "x": "a[b]"}
    assert job_logs.pattern_of("../log/{job}/{node}.out", fields) == "../log/12/*.out"
    assert job_logs.pattern_of("/l/%5j-%x.%N-%t%%.out", fields) == "/l/00012-a[[]b].*-*%.out"
    assert job_logs.usual_patterns(["/l/12.sbatch.out", "/dev/null"], fields) == [
        "/l/12.sbatch.out", "/l/12/*", "/l/12[!0-9]*", "/l/*[!0-9A-Za-z]12[!0-9]*"
    ]  # fmt: skip
    assert job_logs.guessed_nodes(["/l/n1.out", "/l/n0.gpu", "/l/x.txt"]) == ["n0", "n1"]


def test_many_errors_are_counted_and_a_few_are_kept() -> None:
    errors = ErrorLines()
    for number in range(10_000):
        errors.take(f"[E ProcessGroupNCCL.cpp:{number}] NCCL WARN x", None)
    errors.take("torch.cuda.OutOfMemoryError: CUDA out of memory.", None)
    assert errors.count == 10_001
    assert len(errors.kept) == 51
    assert errors.first is not None
    assert errors.first.kind.name == "out_of_memory"


def test_a_healthy_job_has_no_lines_with_errors() -> None:
    errors = ErrorLines()
    for text in healthy().values():
        for line in text.splitlines():
            errors.take(line, None)
    assert errors.kept == []
