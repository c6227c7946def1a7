"""The diff between the two halves of an adoption example, and whether ADOPTING.md shows it."""

import difflib
import pathlib

ADOPTING = pathlib.Path(__file__).parents[1] / "ADOPTING.md"


def part(source, name, end):
    """What is between two marks of an example."""
    return source.split(f"# {name}\n", 1)[1].split(f"\n\n# {end}\n", 1)[0].strip() + "\n"


def changed_lines(before, after):
    """A line that is replaced counts once; one that is only indented does not count."""
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, after))
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in changes if kind != "equal")


def diff(before, after):
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    return "\n".join("@@" if line.startswith("@@") else line for line in lines if not line.startswith(("---", "+++")))


def documented(before, after):
    return diff(before, after) in ADOPTING.read_text()
