# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents: the generated table is the test's, links lead somewhere, and what must stay short
is short."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BIN = os.environ.get("SOUK_BIN", "build/bin")
DOCUMENTS = [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")),
             *sorted((ROOT / "docs").glob("*.md"))]


def anchors(text):
    """The names that a link to a heading of this document may use."""
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_table_of_faults_is_the_one_that_the_simulators_test_checks():
    done = subprocess.run([ROOT / "scripts/fault-table", os.path.abspath(BIN), "--check"],
                          capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_of_what_moves_is_the_table_of_its_test(tmp_path):
    def check(root):
        return subprocess.run([root / "scripts/what-moves", "--check"], capture_output=True,
                              text=True)
    done = check(ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("docs", "scripts", "tests"):  # it would notice
        shutil.copytree(ROOT / part, tmp_path / part)
    things = tmp_path / "tests/moves/things_times.py"
    text = things.read_text()
    for old, new, words in (('"alarm"', '"an alarm"', "make what-moves"),
                            ("test_a_span_lasts", "test_no_span_lasts", "has no test")):
        assert old in text
        things.write_text(text.replace(old, new))
        done = check(tmp_path)
        assert done.returncode == 1 and words in done.stderr, done


def test_the_page_of_security_says_what_the_code_and_the_attempts_say(tmp_path):
    done = subprocess.run([ROOT / "scripts/authority-table", "--check"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    # it would notice: a copy in which one word is a row's no more
    for part in ("docs", "kernel/base", "kernel/wire", "market/wire", "agentd/wire", "tests/attack",
                 "scripts"):
        shutil.copytree(ROOT / part, tmp_path / part, dirs_exist_ok=True)
    for name in ("protobuf.py", "codes.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    header = tmp_path / "agentd/wire/codec.hpp"
    header.write_text(header.read_text().replace("stdio_winch, home", "stdio_winch, node"))
    done = subprocess.run([tmp_path / "scripts/authority-table", "--check"], capture_output=True,
                          text=True)
    assert done.returncode == 1 and "make authority-table" in done.stderr, done


def test_the_profiles_for_owners_are_configurations_that_agentd_takes(tmp_path):
    profiles = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/owner.md").read_text(), re.S)
    assert len(profiles) == 3
    file = tmp_path / "agentd.conf"
    for profile in profiles:
        file.write_text('market = "192.0.2.1:7070"\n' + profile)
        done = subprocess.run([f"{BIN}/agentd", "--config", file, "--check-config"],
                              capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        for key in re.findall(r"^(\w+) = ", profile, re.M):
            assert re.search(rf"^{key} = .*# {file}:", done.stdout, re.M), (key, done.stdout)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_to_files_and_headings_that_are_there(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, heading = target.partition("#")
        file = document.parent / name if name else document
        assert file.exists(), f"{target}: no such file"
        assert not heading or heading in anchors(file.read_text()), f"{target}: no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_sources_that_a_document_names_are_there(document):
    rooms = "kernel|market|agentd|checkpoint|bpf|tools|tests|scripts|contrib"
    for path in re.findall(rf"(?<![\w/.-])(?:{rooms})/[\w/.-]*\w", document.read_text()):
        assert (ROOT / path).exists(), f"{path}: no such file"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_lines_are_at_most_100_columns_but_for_tables_and_links(document):
    long = [line for line in document.read_text().splitlines() if len(line) > 100]
    assert [line for line in long if not line.startswith("|") and "](" not in line] == []


def test_the_map_is_short():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.split()) <= 1500
    glossary = text.split("## Glossary\n")[1].split("\n## ")[0]
    assert len(glossary.splitlines()) <= 60
