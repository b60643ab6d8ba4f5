"""A program on the server is shipped without what it does not run."""

from __future__ import annotations

import pytest

from cdk_app.programs import shipped, with_shipped_programs


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ('"""What it does."""\nimport os\n\n# why\nprint(os)', "import os\nprint(os)"),
        ('def f():\n    """One\n    two"""\n    return 1  # one\n\n\nf()', "def f():\n  return 1  # one\nf()"),
        (
            "def f(ä: dict[str, int], *, b: 'A | None' = 'ä') -> 'A':\n    c: int = ä[b]\n    return c\nf({})",
            "def f(ä, *, b = 'ä'):\n  c = ä[b]\n  return c\nf({})",
        ),
        ("class A:\n    x: int\nA.x = 1", "class A:\n  x: int\nA.x = 1"),
        ("A = 1\nB = A\nC: int = 2\nC |= 4\nD = E = 3\nprint(1)", "D = E = 3\nprint(1)"),
        ("A = 1\nA |= 2\ndef f():\n    return A\nprint(f())", "A = 1\nA |= 2\ndef f():\n  return A\nprint(f())"),
        ("def f():\n    g()\ndef g():\n    f()\nprint(1)", "print(1)"),
        ("@once\ndef f():\n    pass\ndef once(f):\n    return f\nprint(1)", "print(1)"),
        (
            "class A:\n    def __init__(self):\n        pass\n    @property\n    def a(self):\n        return h()\n"
            "    def b(self): pass\nclass B:\n    def a(self):\n        pass\ndef h():\n    pass\nA().a",
            "class A:\n  def __init__(self):\n    pass\n  @property\n  def a(self):\n    return h()\n"
            "def h():\n  pass\nA().a",
        ),
        ("def f():\n    pass\nprint(globals()['f'])", "def f():\n  pass\nprint(globals()['f'])"),
    ],
)
def test_only_what_a_program_runs_is_shipped(program: str, expected: str) -> None:
    assert shipped(program) == expected


def test_the_shell_around_a_program_stays() -> None:
    script = "#!/bin/sh\n# why\npython3 - <<'PYTHON' >out || exit 1\nA = 1\nprint(2)\nPYTHON\necho A\n"
    assert with_shipped_programs(script) == script.replace("A = 1\n", "")
