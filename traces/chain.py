"""How a list of span names differs from the expected one, for people."""

from difflib import SequenceMatcher


def difference(expected: list[str], actual: list[str]) -> list[str]:
    """Nothing if they are equal; else all names, with `-` before missing and `+` before unexpected ones."""
    if expected == actual:
        return []
    lines = []
    for kind, low, high, from_, to in SequenceMatcher(None, expected, actual, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"    {name}" for name in expected[low:high]]
        else:
            lines += [f"  - {name}  (missing)" for name in expected[low:high]]
            lines += [f"  + {name}  (not expected here)" for name in actual[from_:to]]
    return lines
