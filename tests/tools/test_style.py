# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check-style finds one bad file of each kind, in a small tree of its own."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SPDX = "# SPDX-License-Identifier: GPL-2.0-or-later\n"
CONFIGURATION = [".clang-format", ".clang-tidy", ".flake8", ".shellcheckrc", "scripts/check-style",
                 "scripts/tidy"]


@pytest.fixture
def tree(tmp_path):
    """A function: these files in a git tree, and what check-style says of them."""
    for name in CONFIGURATION:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")

    def check(files, **environment):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        done = subprocess.run([tmp_path / "scripts/check-style"], capture_output=True, text=True,
                              timeout=100, env={**os.environ, **environment})
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    check.path = tmp_path
    return check


def git(path, *words):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=path,
                   check=True, timeout=20)


def function(lines, above="", name="long_one()"):
    return f"{above}int {name} {{\n" + "    step();\n" * (lines - 2) + "}\n"


def python(lines, above=""):
    return SPDX + f"{above}def long_one():\n" + "    print()\n" * (lines - 1)


BAD = [
    ("a.cpp", "int  main( ) { return 0; }\n", 1, "clang-format writes this otherwise"),
    ("a.py", SPDX + "x = '" + "x" * 95 + "'\n", 2, "101 columns (at most 100)"),
    ("Makefile", "# " + "x" * 99 + "\n", 1, "101 columns (at most 100)"),
    ("scripts/a", "#!/bin/sh\n# " + "x" * 99 + "\n", 2, "101 columns (at most 100)"),
    ("a.proto", "// " + "x" * 98 + "\n", 1, "101 columns (at most 100)"),
    ("a.cpp", "\n" + function(71), 2, "long_one has 71 lines (at most 70, "),
    ("a.cpp", "START_TEST(a_case) {\n" + "    step();\n" * 69 + "}\n", 1, "a_case has 71 lines "),
    ("a.py", python(71), 2, "long_one has 71 lines (at most 70, "),
    ("a.cpp", "int a;\n" * 701, 1, "701 lines (at most 700, "),
    ("a.py", "x = 1\n" * 701, 1, "701 lines (at most 700, "),
    # A reason is for what is long, and in its place.
    ("a.cpp", function(70, "// Long: a table.\n"), 1, "says why something is long, and it is not"),
    ("a.py", SPDX + "# Long: a table.\nx = 1\n", 2, "says why something is long, and it is not"),
    ("scripts/a", "#!/bin/sh\necho $1\n", 2, "Double quote to prevent globbing"),
    ("a.py", SPDX + "import os\n", 2, "F401 'os' imported but unused"),
    ("scripts/a", "#!/usr/bin/python3\n" + SPDX + "x = y\n", 3, "F821 undefined name 'y'"),
]


@pytest.mark.parametrize("name, text, line, what", BAD, ids=range(len(BAD)))
def test_a_bad_file_is_one_line_and_a_failure(tree, name, text, line, what):
    status, said = tree({name: text})
    if "clang-format" in what and said[0].startswith("skipped: "):
        pytest.skip(said[0])
    found = [finding for finding in said if finding.startswith(f"{name}:{line}: {what}")]
    assert status == 1 and len(found) == 1, said
    assert said[-1] == f"style: {len(said) - 1} findings"


GOOD = {
    "a.cpp": "// Long: a table.\n" + "int a;\n" * 700,
    "b.cpp": function(71, "// What it does.\n// Long: a table.\n"),
    "c.cpp": function(70) + "\n" + "// " + "ü" * 97 + "\n",  # columns, not bytes
    "a.py": python(71, "# Long: one story.\n"),
    "b.py": SPDX + "# Long: one story.\n" + "x = 1\n" * 700,
    "notes.md": "x" * 200 + "\n",
    "data/corpus": "x" * 200 + "\n",
    "scripts/a": "#!/bin/sh\necho \"$1\"\n",
}


def test_what_is_long_with_a_reason_and_what_is_no_code_is_clean(tree):
    tree(GOOD)
    git(tree.path, "add", ".")
    git(tree.path, "commit", "-qm", "good")  # clang-tidy looks at no such file
    status, said = tree({})
    assert status == 0 and said[-1].endswith(" files are clean"), said


def test_a_tool_that_is_missing_is_a_failure_that_says_how_to_get_it(tree):
    (tree.path / "bin").mkdir()
    for tool in ("git", "clang-format", "ctags", "flake8"):
        (tree.path / "bin" / tool).symlink_to(shutil.which(tool))
    status, said = tree({}, PATH=str(tree.path / "bin"))
    assert status == 1 and said[-1] == "style: 1 findings", said
    assert "no shellcheck here" in said[-2] and "make test-deps (package shellcheck)" in said[-2]


def test_clang_tidy_looks_at_what_differs_from_a_commit(tree):
    (tree.path / "build/gen").mkdir(parents=True)
    bad = {"kernel/a.cpp": "int f(int a) {\n    if (a > 1);\n    return a;\n}\n"}
    finding = "kernel/a.cpp:2: "
    status, said = tree(bad)
    assert status == 1 and any(line.startswith(finding) and "bugprone" in line for line in said)
    git(tree.path, "add", ".")
    git(tree.path, "commit", "-qm", "bad")
    assert not any("bugprone" in line for line in tree({})[1])
    assert any("bugprone" in line for line in tree({}, STYLE_BASE="HEAD^")[1])
    status, said = tree({}, STYLE_BASE="no-such")
    assert status == 1 and any("STYLE_BASE=no-such" in line for line in said), said
