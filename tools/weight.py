"""Weight of the product: lines of each package and feature, and what makes code hard to change.

Usage: python tools/weight.py [--check | --write]

`tools/weight.toml` has each figure. ``--check`` prints the figures that differ from those of the tree, and those that
rose since the last commit without a reason; ``--write`` writes those of the tree. A figure may rise only if the same
commit adds a ``[[raise]]`` with its name, the amount and the reason.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = "tools/weight.toml"
#: Features that cross packages, by patterns of their paths.
FEATURES = {
    "running-job": r"/(running_job|jobs|job)/|/(job|job_\w+|hang)\.py$",
    "history": r"/history/|/(history|recurrence|site_past)\w*\.py$",
    "mcp": r"^fabtui/mcp/|/commands/mcp\.py$",
    "importers": r"^fabtui/importers/",
    "results-table": r"^fabtui/model/(measurement|pair_|class_statistics|tally|cell_|severity_index|places)",
    "output": r"^fabtui/(presentation|report|export|pictures)/",
}
#: Modules of other packages that are private to them.
_PRIVATE = re.compile(r"\b(?:re|textual|rich|asyncssh|numpy|torch)\._\w+|\"(?:re|textual|rich)\._\w+")


def _files(root: Path, *folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]


def code_lines(text: str) -> int:
    """Return the number of lines with code: no blank line, comment or docstring."""
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            rows.update(range(token.start[0], token.end[0] + 1) if token.string else ())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            rows -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(rows)


def _late_constants(tree: ast.Module) -> int:
    """Return the number of constants of a module below its first function or class."""
    seen, count = False, 0
    for node in tree.body:
        seen = seen or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        count += seen and any(isinstance(target, ast.Name) and target.id.lstrip("_").isupper() for target in targets)
    return count


def figures(root: Path) -> dict[str, int]:
    """Return each figure of a checkout by its name, such as ``lines.fabtui/model``."""
    counts: Counter[str] = Counter()
    for path in _files(root, "fabtui", "probes"):
        name, text = path.relative_to(root).as_posix(), path.read_text("utf-8")
        package = (
            "/".join(name.split("/")[:2]) if name.count("/") > 1 and name.startswith("fabtui/") else name.split("/")[0]
        )
        lines = text.count("\n")
        code = code_lines(text)
        counts[f"lines.{package}"] += lines
        counts[f"code.{package}"] += code
        counts["total.lines"] += lines
        counts["total.code"] += code
        counts["total.files"] += 1
        for feature, pattern in FEATURES.items():
            if re.search(pattern, name):
                counts[f"feature.{feature}"] += lines
        counts["habit.private-modules"] += len(_PRIVATE.findall(text))
        counts["habit.late-constants"] += _late_constants(ast.parse(text))
        if name.startswith("fabtui/"):
            counts["habit.dict-str-any"] += text.count("dict[str, Any]")
            counts["habit.found-or-one"] += len(re.findall(r"\b(?:found|one) = ", text))
    counts["habit.lazy-imports"] = (root / "tools" / "lazy_imports.toml").read_text("utf-8").count("[[lazy]]")
    counts["aside.tests"] = sum(path.read_text("utf-8").count("\n") for path in _files(root, "tests"))
    counts["aside.bench-and-tools"] = sum(
        path.read_text("utf-8").count("\n") for path in _files(root, "bench", "tools")
    )
    others = [path for end in ("toml", "js", "css", "tcss") for path in (root / "fabtui").rglob(f"*.{end}")]
    counts["aside.toml-js-css"] = sum(path.read_text("utf-8").count("\n") for path in others)
    return dict(sorted(counts.items()))


def _flat(text: str) -> tuple[dict[str, int], list[dict[str, object]]]:
    values = tomllib.loads(text)
    return dict(values["figures"]), list(values.get("raise", ()))


def problems(root: Path) -> Iterator[str]:
    """Yield figures that are not those of the tree, and those that rose without a reason."""
    recorded, raises = _flat((root / FILE).read_text("utf-8"))
    measured = figures(root)
    for name in sorted(recorded.keys() | measured.keys()):
        old, new = recorded.get(name, 0), measured.get(name, 0)
        if old != new:
            yield f"{name} is {new}, {FILE} has {old}: remove lines, or run tools/weight.py --write and give a reason"
    before, earlier = _before(root)
    for name, value in recorded.items():
        given = [one for one in raises if one not in earlier and one["figure"] == name and str(one["reason"]).strip()]
        allowed = before.get(name, 0) + sum(int(str(one["by"])) for one in given)
        if before and value > allowed:
            yield f"{name} rises from {before.get(name, 0)} to {value} without a reason: add a [[raise]] to {FILE}"


def _before(root: Path) -> tuple[dict[str, int], list[dict[str, object]]]:
    """Return the figures and reasons of the last commit that has others than the tree; none outside a checkout."""
    for commit in ("HEAD", "HEAD~1"):
        shown = subprocess.run(
            ["git", "show", f"{commit}:{FILE}"], cwd=root, capture_output=True, text=True, check=False
        )
        if shown.returncode == 0 and shown.stdout != (root / FILE).read_text("utf-8"):
            return _flat(shown.stdout)
    return {}, []


def written(root: Path) -> str:
    """Return the text of `FILE` with the figures of the tree; all else stays."""
    head, mark, rest = (root / FILE).read_text("utf-8").partition("[figures]\n")
    tail = rest[rest.find("\n[") :] if "\n[" in rest else ""
    return head + mark + "".join(f'"{name}" = {value}\n' for name, value in figures(root).items()) + tail


def main() -> int:
    """Print, check or write the figures; return 1 if there are problems."""
    if "--write" in sys.argv[1:]:
        (ROOT / FILE).write_text(written(ROOT), "utf-8")
    if "--check" in sys.argv[1:]:
        lines = list(problems(ROOT))
        print("\n".join([*lines, f"weight: {len(lines)} problems"]))
        return 1 if lines else 0
    for name, value in figures(ROOT).items():
        print(f"{name:<36}{value:>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
