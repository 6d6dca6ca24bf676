"""Lint the repository's English: the hits of each rule may fall, and never rise.

`--all` prints every hit, and `--write` lowers the counts in `.ci/prose.json`. A hit is a question.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / ".ci" / "prose.json"
PAGES, PACKAGES = ("*.md", "docs/**/*.md", "tests/README.md"), ("api", "clients", "cmfl", "ledger")
MAX_WORDS, MAX_LINE, MAX_SUBJECT, MAX_PAGE, MAX_DOCS, NEWEST = 35, 120, 72, 2_000, 51_000, 30
TO = "of|by|from|to|in|on|at|for|with|under|over|after|before|beside|against|without|through|within"
PROGRAM = (
    "audit|browser|chain|command|contract|dashboard|document|file|key|log|module|node|page|preset|"
    "process|program|proof|record|report|rule|run|script|service|setting|store|table|test|worker"
)
HUMAN = "says?|tells?|told|knows?|ask(?:s|ed)?|wants?|speaks?|forgets?|notices?|believes?"
QUAINT = (
    r"anew|mend(?:s|ed|ing)?|for (?:ever|good)|commonest|beside|hence|thereby|whereby|lest|whom|"
    r"altogether|wholly|for want of|to be had|once more|so many|comes? of|taken? back|as ever|"
    r"(?:but|save) for|(?:is|are) left(?! (?:out|alone|empty|open)\b)|passe[ds]? over|bears? out"
)
IN_SENTENCES = {
    "W1 name the person": r"(?i)\b(?:(?:no|any|every|some)body|who(?:m|so)?ever)\b",
    "W2 split the relative clause": rf"(?i)\b(?:{TO}) (?:which|whom|whose)\b",
    "W3 negate the verb": r"(?<!here )\b(?:is|are|was|were|be) no(?:ne)?\b(?! (?:longer|more)\b)",
    "W4 give 'who' its noun": rf"^Who [a-z]|(?:[;:]|, (?:and|or|but)|\b(?:than|as|{TO})) who [a-z]",
    "W5 open with the subject": r"^(?:What|Who|Whose|Which|How|Where|That)(?:ever)? [a-z][^?]*$",
    "W6 open with the subject": r"^(?:Of|By|Beside|Against|Not(?:hing)? of|Such an?) [a-z0-9]",
    "W7 repeat the noun": r"(?i)\bth(?:at|ose) (?:of|in|on|with|from|by|under)\b|\bthose wh",
    "W8 let a program print or verify": rf"(?i)\b(?:{PROGRAM}) (?:then |also )?(?:{HUMAN})\b",
    "W9 use the common word": rf"(?i)\b(?:{QUAINT})\b",
    "N1 write 0.5": r"""(?<![\w.,)\]/="'-])[-−+±]?\.\d""",
    "N3 write 30%": r"\d\s%",
}
NO_NOUN = rf" {{4}}\*{{0,2}}\w+: (?:{TO}|as|about|between|behind|it|them|they|wh\w+|how)\b"
NO_VERB = rf"(?:an?|the|no|its?|new|what|{TO}|\w+(?:(?<!e)ed|(?<!br)ing|tion|[^siu]s))\b"
WORD = re.compile(r"[A-Za-zÀ-ÿ][\w'-]*|\d[\d.,]*")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[A-Z\"'(\[0-9])")
PARAGRAPH = re.compile(
    r"(?m)^(?!\s*(?:[#|]|!!!|:::|\[[^]]+]: )).*\S.*"
    r"(?:\n(?!\s*(?:[*+-] |\d+[.)] |[#|]|\[[^]]+]: |\*{0,2}\w+: |$)).*)*"
)
GENERATED = re.compile(r"(?ms)^ *(```+|~~~+).*?^ *\1$|<!-- figure:.*?<!-- /figure -->")
Hit = tuple[str, str, str]  # area and rule, place, text


def plain(text: str) -> str:
    """Return Markdown as plain text; code becomes the word CODE."""
    text = re.sub(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|</?[A-Za-z][^>]*>|^\s*[*+-] ", " ", text)
    text = re.sub(r"``.+?``|`[^`]+`|https?://\S+|\$?\{[^}]*\}", "CODE", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return " ".join(re.sub(r"\*\*|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)", "", text).split())


def in_text(area: str, file: str, line: int, text: str) -> Iterator[Hit]:
    """Yield the hits in each paragraph of a text that begins on this line of a file."""
    for paragraph in PARAGRAPH.finditer(text):
        place = f"{file}:{line + text.count(chr(10), 0, paragraph.start())}"
        if area == "docstrings" and re.match(NO_NOUN, paragraph[0]):
            yield f"{area} D1", place, f"begin with a noun: {paragraph[0].strip()}"
        for sentence in SENTENCE_END.split(plain(paragraph[0])):
            words = len(WORD.findall(sentence))
            if words > MAX_WORDS:
                yield f"{area} S1", place, f"{words} words: {sentence}"
            for rule, pattern in IN_SENTENCES.items() if words > 2 else ():
                for found in re.finditer(pattern, sentence):
                    yield f"{area} {rule[:2]}", place, f"{rule[3:]}: [{found[0]}] {sentence}"


def in_pages() -> Iterator[Hit]:
    """Yield the hits in README and docs: sentences, long lines and long pages."""
    total = 0
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        name = str(path.relative_to(ROOT))
        area = "README" if name == "README.md" else "docs"
        text = GENERATED.sub(lambda it: "CODE" + "\n" * it[0].count("\n"), path.read_text("utf-8"))
        yield from in_text(area, name, 1, text)
        for number, line in enumerate(text.splitlines(), 1):
            shown = re.sub(r"\]\([^)]*\)|https?:\S+", "]", line).strip()
            if len(shown) > MAX_LINE and shown[0] not in "|<":
                yield f"{area} S4", f"{name}:{number}", f"{len(line)} characters"
        words = sum(len(WORD.findall(plain(match[0]))) for match in PARAGRAPH.finditer(text))
        if words > MAX_PAGE:
            yield f"{area} P1", f"{name}:1", f"split the page: {words:,} words"
        total += words if re.match(r"docs/(?!project/)", name) else 0
    if total > MAX_DOCS:
        yield "docs P2", "docs:1", f"shorten the docs: {total:,} words, of {MAX_DOCS:,}"


def in_code() -> Iterator[Hit]:
    """Yield the hits in docstrings, help texts, error messages and the dashboard."""
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        name, strings = str(path.relative_to(ROOT)), list[tuple[str, ast.expr]]()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                is_help = "/commands/" in name and getattr(node, "decorator_list", None)
                if text := ast.get_docstring(node):
                    area = "help" if is_help else "docstrings"
                    yield from in_text(area, name, node.body[0].lineno, text)
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                strings += [("errors", value) for value in node.exc.args]
                strings += [("errors", keyword.value) for keyword in node.exc.keywords]
            elif isinstance(node, ast.keyword) and node.arg in {"help", "epilog"}:
                strings.append(("help", node.value))
        for area, value in strings:
            if isinstance(value, ast.Constant | ast.JoinedStr):
                text = ast.unparse(value).lstrip("f").strip("\"'")
                yield from in_text(area, name, value.lineno, text)
    for path in sorted(ROOT.glob("api/web/js/**/*.js")):
        for line, script in enumerate(path.read_text("utf-8").splitlines(), 1):
            for shown in re.findall(r"[\"`]([^\"`]*(?:\b[a-z]{2,} [^\"`]*){3})[\"`]", script):
                yield from in_text("dashboard", str(path.relative_to(ROOT)), line, shown)


def git(*words: str) -> str:
    """Return the output of a command of git, which may be empty."""
    command = ("git", "-C", str(ROOT), *words)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def in_commits(since: str) -> Iterator[Hit]:
    """Yield the hits in messages after this commit, or in the newest where it is unknown."""
    if not (ROOT / ".git").exists():
        print("this copy has no history: commit messages are not checked")
        return
    is_known = since and git("merge-base", since, "HEAD").strip() == since
    chosen = f"{since}..HEAD" if is_known else f"-{NEWEST}"
    fields = git("log", "--no-merges", "--format=%h%x00%B%x00", chosen).split("\0")
    for name, message in zip(fields[::2], fields[1::2], strict=False):
        place, subject = f"commit {name.strip()}", message.partition("\n")[0]
        if len(subject) > MAX_SUBJECT:
            yield "commits C1", f"{place}:1", f"{len(subject)} characters: {subject}"
        if not re.match(rf"[\w.,/ -]+: (?!{NO_VERB})[a-z]", subject):
            yield "commits C2", f"{place}:1", f"write 'area: verb ...': {subject}"
        yield from in_text("commits", place, 1, message)


def main(*words: str) -> int:
    """Print the hits of each rule whose count rose; return 1 if there are any."""
    known = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    hits = [*in_pages(), *in_code(), *in_commits(known.get("commit", ""))]
    counts = Counter(rule for rule, _, _ in hits)
    rose = counts - Counter(known.get("counts", counts))
    for rule, place, text in hits:
        if rule in rose or "--all" in words:
            print(f"{place}: {rule} {text}")
    for rule in rose:
        print(f"{rule}: {counts[rule]} hits, {counts[rule] - rose[rule]} allowed")
    lasting = {rule: count for rule, count in counts.items() if not rule.startswith("commits")}
    if "--write" in words and not rose.keys() & lasting.keys():
        baseline = {"commit": git("rev-parse", "HEAD").strip(), "counts": lasting}
        BASELINE.write_text(json.dumps(baseline, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    return int(bool(rose))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
