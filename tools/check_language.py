"""Check titles and words of the source, the tests' names and the documentation.

Usage: python tools/check_language.py [PATH ...]

Checked are docstrings, comments, messages (strings of several words), identifiers, and Markdown files, against
``tools/language.toml``: a title is a noun or verb phrase, not a clause; banned words have a term of the field; a
sentence of a docstring has a maximum number of words. Text in double or single backticks is code and left out.
"""

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULES = tomllib.loads((ROOT / "tools" / "language.toml").read_text())
#: History, outputs of other programs, and this check with its word list.
LEFT_OUT = ("CHANGELOG.md", "tests/samples/", "tests/screen/__snapshots__/", "recordings/", "tools/language.toml")
CODE = re.compile(r"``.*?``|`[^`]*`|https?://\S+", re.DOTALL)
CLAUSE = re.compile(rf"(?:{'|'.join(RULES['titles']['clauses'])})\b")
WORDS = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), term) for word, term in RULES["words"].items()]
#: Any of the words; nearly all texts have none.
ANY_WORD = re.compile(rf"\b(?:{'|'.join(RULES['words'])})\b", re.IGNORECASE)
PROSE = [(re.compile(phrase), term) for phrase, term in RULES["prose"].items()]
ANY_PROSE = re.compile("|".join(RULES["prose"]))
NAMES: dict[str, str] = RULES["names"]
MAXIMUM_WORDS = RULES["sentences"]["maximum_words"]
#: Strings, and in its group a comment: nothing else of a source holds a quote or a hash sign.
COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'{3}(?:[^\\]|\\.)*?\'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(#[^\n]*)''', re.DOTALL
)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|:\s|\n\s*(?:\n|[-*] )|;\s")
#: Sections of Google-style docstrings that hold lists rather than sentences.
SECTION = re.compile(
    r"^\s*(?:Args|Attributes|Raises|Returns|Yields|Usage|Example|Examples):.*", re.MULTILINE | re.DOTALL
)

Problem = tuple[int, str]


def banned_words(text: str, line: int) -> Iterator[Problem]:
    plain = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    if not ANY_WORD.search(plain):
        return
    for pattern, term in WORDS:
        for found in pattern.finditer(plain):
            yield line + plain.count("\n", 0, found.start()), f"{found[0]!r}: use {term}"


def private_idiom(text: str, line: int) -> Iterator[Problem]:
    """Yield each phrase of a comment or docstring that the language does not have."""
    plain = CODE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), text)
    if not ANY_PROSE.search(plain):
        return
    for pattern, term in PROSE:
        for found in pattern.finditer(plain):
            yield line + plain.count("\n", 0, found.start()), f"{' '.join(found[0].split())!r}: use {term}"


def docstring(text: str, line: int) -> Iterator[Problem]:
    """Yield the problems of a docstring: its title, its words, the length of its sentences."""
    title = text.strip().partition("\n")[0]
    if CLAUSE.match(title):
        yield line, f"title is a clause: {title!r}"
    yield from banned_words(text, line)
    yield from private_idiom(text, line)
    for sentence in SENTENCE_END.split(INDENTED.sub("", SECTION.sub("", text))):
        words = sentence.split()
        if len(words) > MAXIMUM_WORDS and "|" not in sentence and "==" not in sentence and "{" not in sentence:
            yield line, f"sentence of {len(words)} words: {' '.join(words[:8])} ..."


def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes in the order of ``ast.walk``, which takes three times as long; without contexts of names."""
    found: list[ast.AST] = [tree]
    for node in found:
        for name in node._fields:
            value = None if name == "ctx" else getattr(node, name)
            if isinstance(value, list):
                found += [inner for inner in value if isinstance(inner, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def identifiers(nodes: list[ast.AST]) -> Iterator[Problem]:
    """Yield names of functions, classes, arguments and variables that hold a banned part."""
    seen: set[tuple[int, str]] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name, line = node.name, node.lineno
        elif isinstance(node, ast.arg):
            name, line = node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name, line = node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name, line = node.attr, node.lineno
        else:
            continue
        for part in re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"):
            if part in NAMES and (line, name) not in seen:
                seen.add((line, name))
                yield line, f"name {name!r}: {part!r}: use {NAMES[part]}"


def python_problems(source: str) -> Iterator[Problem]:
    nodes = nodes_of(ast.parse(source))
    documented: set[int] = set()
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=True)
            if text is not None and isinstance(node.body[0], ast.Expr):
                documented.add(id(node.body[0].value))
                yield from docstring(text, node.body[0].lineno)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            # A short string is a key or a label.
            if len(node.value.split()) < RULES["messages"]["minimum_words"]:
                continue
            yield from ((node.lineno, text) for _, text in banned_words(node.value, 0))
    for comment in COMMENT.finditer(source):
        if comment[1]:
            line = source.count("\n", 0, comment.start()) + 1
            yield from banned_words(comment[1], line)
            yield from private_idiom(comment[1], line)
    yield from identifiers(nodes)


def markdown_problems(text: str) -> Iterator[Problem]:
    """Yield the banned words of a Markdown text; indented and fenced blocks are code."""
    plain = FENCED.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    plain = INDENTED.sub("", plain)
    yield from banned_words(plain, 1)


def files(paths: list[str]) -> list[Path]:
    """Return the tracked files to be checked, or those of some paths."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *(paths or ["fabtui", "probes", "bench", "tools", "tests", "*.md"])],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = [name for name in listed.stdout.splitlines() if name.endswith((".py", ".md", ".toml"))]
    return [ROOT / name for name in names if not name.startswith(LEFT_OUT)]


def main() -> int:
    """Print each problem as path:line: text; return 1 if there are any."""
    gc.disable()  # It would look through each tree again and again.
    count = 0
    for path in files(sys.argv[1:]):
        if not path.is_file():
            continue
        text = path.read_text()
        if path.suffix == ".py":
            found = python_problems(text)
        elif path.suffix == ".md":
            found = markdown_problems(text)
        else:
            found = banned_words(text, 1)
        for line, problem in sorted(found):
            count += 1
            print(f"{path.relative_to(ROOT)}:{line}: {problem}")
    print(f"language: {count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
