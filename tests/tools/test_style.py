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
    """A function puts these files into a git tree and returns what check-style says of them."""
    for name in CONFIGURATION:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    base = git(tmp_path, "rev-parse", "HEAD")

    def check(files, *options, commit=False, **environment):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        if commit:  # clang-tidy looks at no such file
            git(tmp_path, "add", ".")
            git(tmp_path, "commit", "-qm", "a: add files")
        done = subprocess.run([tmp_path / "scripts/check-style", *options], capture_output=True,
                              text=True, timeout=100, cwd=tmp_path,
                              env={**os.environ, **environment})
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    def baseline(*entries):
        (tmp_path / "scripts/style-baseline").write_text("\n".join(entries) + f"\nsubject {base}")

    baseline()
    check.path, check.baseline = tmp_path, baseline
    return check


def git(path, *words):
    return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=path,
                          check=True, timeout=20, capture_output=True, text=True).stdout


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
    "b.cpp": function(71, "// It does.\n// Long: a table.\n"),
    "c.cpp": function(70) + "\n" + "// " + "ü" * 97 + "\n",  # columns, not bytes
    "d.cpp": "// The first line.\n// Of the second.\nauto a = \" // Of a string.\";  // of it\n",
    "e.hpp": "// Often.\nint a;\n",
    "a.py": python(71, "# Long: one story.\n"),
    "b.py": SPDX + "# Long: one story.\n" + "x = 1\n" * 700,
    "notes.md": "x" * 200 + "\n",
    "data/corpus": "x" * 200 + "\n",
    "scripts/a": "#!/bin/sh\necho \"$1\"\n",
}


def test_what_is_long_with_a_reason_and_what_is_no_code_is_clean(tree):
    status, said = tree(GOOD, commit=True)
    assert status == 0 and said[-1].endswith(" files are clean"), said


@pytest.mark.parametrize("missing, package", [("shellcheck", "shellcheck"),
                                              ("ctags", "universal-ctags")])
def test_a_tool_that_is_missing_is_a_failure_that_says_how_to_get_it(tree, missing, package):
    (tree.path / "bin").mkdir()
    for tool in {"git", "clang-format", "ctags", "flake8", "shellcheck"} - {missing}:
        (tree.path / "bin" / tool).symlink_to(shutil.which(tool))
    status, said = tree({}, PATH=str(tree.path / "bin"))
    assert status == 1 and said[-1] == "style: 1 findings", said
    assert f"no {missing} here" in said[-2] and f"test-deps (package {package})" in said[-2]


def test_clang_tidy_looks_at_what_differs_from_a_commit(tree):
    (tree.path / "build/gen").mkdir(parents=True)
    bad = {"kernel/a.cpp": "int f(int a) {\n    if (a > 1);\n    return a;\n}\n"}
    finding = "kernel/a.cpp:2: "
    status, said = tree(bad)
    assert status == 1 and any(line.startswith(finding) and "bugprone" in line for line in said)
    assert not any("bugprone" in line for line in tree({}, commit=True)[1])
    assert any("bugprone" in line for line in tree({}, STYLE_BASE="HEAD^")[1])
    status, said = tree({}, STYLE_BASE="no-such")
    assert status == 1 and any("STYLE_BASE=no-such" in line for line in said), said


def test_a_comment_begins_with_none_of_six_words(tree):
    said = tree({
        "a.hpp": "// Of a thing.\nint a;  // What it is.\n",
        "b.c": "/* Where it goes.\n * By night. */\n",
        "c.proto": "// By hand.\n\n// It is.\n\n// By night\n",
        "d.py": SPDX + '"""Who reads this."""\n',
        "e": "#!/bin/sh\n# Likewise.\n",
        # The first words of a comment stand below these lines.
        "f.hpp": "// SPDX\n// Long: a table.\n// Of a thing.\n" + "int a;\n" * 700,
    }, commit=True)[1]
    assert said == [f"{finding})" for finding in [
        "a.hpp:1: a comment begins with Of (all: 1, 2",
        "b.c:1: a comment begins with Where (all: 1",
        "f.hpp:3: a comment begins with Of (all: 3",
        "d.py:2: a comment begins with Who (all: 2",
        "e:2: a comment begins with Likewise (all: 2",
        "c.proto:1: a comment begins with By (all: 1, 5"]] + ["style: 6 findings"]


METHOD = "void {}() {{}}\n"
LOCAL = "namespace {\n\nstruct A {\n    void f() {}\n};\n\n}  // namespace\n"


def test_a_class_is_in_one_file(tree):
    said = tree({
        "a.cpp": METHOD.format("A::f"),
        "a.hpp": "struct A {\n    void d() {}\n};\n",
        "b.cpp": METHOD.format("A::g"),
        "c.cpp": "namespace n {\n\n" + METHOD.format("B::f") + "\n}  // namespace n\n",
        "d.cpp": METHOD.format("n::B::g"),
        # One that is nested in it, one of a test, two that are local, and a namespace.
        "e.cpp": METHOD.format("A::C::f"),
        "tests/f.cpp": METHOD.format("A::h"),
        "g.cpp": LOCAL + "\n" + METHOD.format("n::f"),
        "h.cpp": LOCAL + "\n" + METHOD.format("n::g"),
    }, commit=True)[1]
    assert said == ["b.cpp:1: A has methods in 2 files: a.cpp, b.cpp",
                    "d.cpp:1: n::B has methods in 2 files: c.cpp, d.cpp", "style: 2 findings"]


def test_a_name_is_unlike_its_neighbours(tree):
    said = tree(dict.fromkeys(["x/net_cut.hpp", "x/nets_cut.cpp", "x/filecut.c", "x/file_cuts.hpp",
                               "x/file.hpp", "x/file.cpp", "x/filed.cpp", "y/files.cpp"], ""),
                commit=True)[1]
    assert said == ["x/file_cuts.hpp:1: its name differs little from x/filecut",
                    "x/net_cut.hpp:1: its name differs little from x/nets_cut", "style: 2 findings"]


def test_the_baseline_may_only_shrink(tree):
    ofs = [f"// Of {n}.\nint a{n};\n" for n in range(3)]
    old = {"a.cpp": METHOD.format("A::f"), "b.cpp": METHOD.format("A::g"), "as.cpp": "",
           "b.hpp": "".join(ofs[:2])}
    entries = ["opening b.hpp 2", "# The reason.", "class A 2", "name a as"]
    tree.baseline(*entries)
    status, said = tree(old, commit=True)
    assert status == 0, said

    status, said = tree({"c.cpp": METHOD.format("A::h"), "b.hpp": "".join(ofs)}, commit=True)
    assert status == 1 and said == [
        "c.cpp:1: A has methods in 3 files: a.cpp, b.cpp, c.cpp (scripts/style-baseline has 2)",
        "b.hpp:1: a comment begins with Of (all: 1, 3, 5) (scripts/style-baseline has 2)",
        "style: 2 findings"]
    before = (tree.path / "scripts/style-baseline").read_text().splitlines()
    assert tree({}, "--shrink") == (0, [])  # adds nothing
    assert (tree.path / "scripts/style-baseline").read_text().splitlines() == sorted(before)
    tree.baseline(*entries)

    (tree.path / "as.cpp").unlink()
    status, said = tree({"c.cpp": "", "b.cpp": "", "b.hpp": ofs[0]}, commit=True)
    may = "left of {}: the baseline may shrink: run scripts/check-style --shrink"
    assert status == 1 and said == [
        "scripts/style-baseline:1: opening b.hpp: 1 " + may.format(2),
        "scripts/style-baseline:3: class A: 0 " + may.format(2),
        "scripts/style-baseline:4: name a as: 0 " + may.format(1), "style: 3 findings"]
    assert tree({}, "--shrink") == (0, [])
    kept = (tree.path / "scripts/style-baseline").read_text().splitlines()
    assert kept == ["# The reason.", "opening b.hpp 1", before[-1]]
    assert tree({})[0] == 0


def test_the_subject_of_a_commit_is_an_area_and_a_verb(tree):
    good = ["a: add b", "kernel/sys, home: keep x()", "the fuzz targets: run", "a: " + "x" * 69]
    bad = ["Add b", "a: Add b", "a:add b", "a: what has been", "a of more words: add b",
           "a: " + "x" * 70]
    for subject in good + bad:
        git(tree.path, "commit", "--allow-empty", "-qm", subject)
    git(tree.path, "checkout", "-qb", "side", "HEAD^")
    git(tree.path, "commit", "--allow-empty", "-qm", "a: add b")
    git(tree.path, "merge", "-qm", "Merge that", "@{-1}")
    status, said = tree({})
    assert status == 1 and [line.split(": ", 1)[1] for line in reversed(said[:-1])] == [
        *[f"'{subject}' is not 'area: verb object'" for subject in bad[:-1]],
        "its subject has 73 characters (at most 72)"]

    with open(tree.path / "scripts/style-baseline", "w") as baseline:
        baseline.write("subject " + "0" * 40)
    status, said = tree({})
    assert status == 0 and said[:-1] == [
        "skipped: the subjects of commits: this history does not have 00000000"]
