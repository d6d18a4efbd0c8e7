"""Lines of other programs, and of none: the answer is that they are unknown, never a guess."""

from pathlib import Path

import pytest

from .test_cases import Out, answer

LINES = (
    "the printer is on fire",
    "ERROR: could not find a version that satisfies the requirement flask==9.9 (from versions: 1.0, 2.0)",
    "make: *** [Makefile:12: all] Error 2",
    "npm ERR! code ELIFECYCLE",
    'psql: FATAL:  password authentication failed for user "alice"',
    "SyntaxError: invalid syntax",
    "KeyError: 'learning_rate'",
    "ValueError: too many values to unpack (expected 2)",
    "FileNotFoundError: [Errno 2] No such file or directory: 'config.yaml'",
    "fatal: not a git repository (or any of the parent directories): .git",
    "E: Unable to locate package nosuchpackage",
    "panic: runtime error: index out of range [3] with length 3",
    'java.lang.NullPointerException: Cannot invoke "String.length()" because "s" is null',
    '2026-11-20 10:12:01 [error] 1234#0: *5 open() "/var/www/favicon.ico" failed (2: No such file or directory)',
    "ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)",
    "curl: (60) SSL certificate problem: self-signed certificate",
    "tar: Exiting with failure status due to previous errors",
    "warning: unused variable `x`",
    "Killer rabbit failed with status 12 carrots and error 401 hugs",
    "lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do 217 of 700 eiusmod tempor",
)
#: Errors of other programs in words that also NCCL, PyTorch's process groups, Gloo or perftest print.
NEAR = (
    "ValueError: Number of iterations must be positive",
    "psql: error: could not connect to server: Connection refused",
    "mysql: Can't connect to MySQL server on '192.0.2.1' (111 Connection refused)",
    "telnet: Unable to connect to remote host: Connection refused",
    "wandb: Network error (ConnectionError): connect to api.example.org failed: Connection refused",
    "error: Duplicated argument --foo",
    "Invalid Command line option",
    "XRC is not installed",
    "GID index is not valid for the user 1000",
    "SRD not available",
    "mysql: MPI_Init: 3",
    "redis: Connecting to Redis at 127.0.0.1",
    "ERROR: File already exists",
    "Poll failed: interrupted",
    "VALIDATION accuracy 0.91",
    "TypeError: NULL buffer_base",
    "matplotlib: Invalid backend 'foo'",
    "Undefined symbol: _ZN3foo",
    "ImportError: /usr/lib/foo.so: undefined symbol: _ZN3c10",
    "File cannot be opened",
    "nginx: named pipe not found",
    "kernel: NUMA node 3 does not exist",
    "xml.etree: XML Parse error",
    "Allocating buffers failed",
    "AssertionError: tensor must be on GPU",
    "Could not load GPU driver",
    "Unable to open CQ database",
    "invalid GPU id 7",
    "RuntimeError: expected scalar type Half but found Float",
    "[rank3]: RuntimeError: expected scalar type Half but found Float",
    "[rank3]: ValueError: All arrays must be of the same length",
    "[rank0]: AssertionError: batch size must be a power of two",
    "[rank0]: IndexError: pop from empty list",
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "[rank0]: RuntimeError: view size is not compatible with input tensor's size and stride; use .contiguous()",
    "[rank0]: ValueError: invalid literal for int() with base 10: 'x'",
    "[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    "ValueError: tensors must be positive",
)


@pytest.mark.parametrize("line", [*LINES, *NEAR])
def test_nonsense_is_unknown(line: str, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pasted.log").write_text(f"{line}\n")
    for args in ((line,), ("pasted.log",)):
        code, text = answer(capsys, "explain", *args)
        assert (code, "cause: " in text, "note: " in text) == (1, False, False), text
        assert text.startswith(("unknown: ", "no failure", "nothing known"))


def test_nonsense_together_is_unknown(capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pasted.log").write_text("".join(f"{line}\n" for line in LINES))
    code, text = answer(capsys, "explain", "pasted.log")
    assert (code, text.startswith("unknown: no known error in 20 lines")) == (1, True), text
