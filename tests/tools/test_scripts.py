# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/test finds one test by its name; each process finds the same tests."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def shown(name):
    return subprocess.run([ROOT / "scripts/test", "build", name, "--show"], capture_output=True,
                          text=True, timeout=20)


@pytest.mark.parametrize("words, status, said", [
    (["--check"], 2, "the directory of the programs is missing: fault-table build/bin [--check]"),
    (["/no/such", "--check"], 1, "/no/such/clustersim: No such file or directory; build it with")])
def test_the_table_of_faults_without_a_build_is_one_line(words, status, said):
    done = subprocess.run([ROOT / "scripts/fault-table", *words], capture_output=True, text=True,
                          timeout=20)
    assert done.returncode == status and done.stderr.startswith("fault-table: " + said), done
    assert done.stderr.count("\n") == 1 and not done.stdout, done


@pytest.mark.parametrize("name, command", [
    ("story", "env CK_RUN_SUITE=story build/tests/unit"),
    ("what_repeats_is_told_once_and_counted", "env SOUK_TEST=what_repeats_is_told_once_and_counted "
     "build/tests/unit"), ("sim_agents", "env CK_RUN_SUITE=sim_agents build/tests/unit"),
    ("test_ctl", "pytest -q -rfEs tests/tools/test_ctl.py"),
    ("test_views", "pytest -q -rfEs tests/cluster/test_views.py"),
    ("test_one_seed_is_told_step_by_step",
     "tests/tools/test_clustersim.py -k test_one_seed_is_told_step_by_step")])
def test_a_test_is_found_by_its_name(name, command):
    done = shown(name)
    assert done.returncode == 0 and done.stdout.endswith(command + "\n"), (done.stdout, done.stderr)


@pytest.mark.parametrize("name, words",
                         [("", "which test?"), ("stor", "there is no test 'stor'; near it are: "),
                          ("a b", "is not a test's name")])
def test_what_is_not_there_is_said_in_a_line(name, words):
    done = shown(name)
    assert ((done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and
            words in done.stderr)


# scripts/check runs a test that failed again by its name, in a process that starts at another time
# and with another seed of hashes.
LATER = ("import sys, time\nimport pytest\nreal = time.time\n"
         "time.time = lambda: real() + float(sys.argv[1])\n"
         "sys.exit(pytest.main(['-q', '--collect-only', sys.argv[2]]))")


@pytest.mark.parametrize("folder", ["tests/tools", "tests/cluster"])
def test_the_same_tests_are_found_by_every_process(folder):
    def found(later, seed):
        return subprocess.run([sys.executable, "-c", LATER, later, folder], cwd=ROOT, text=True,
                              env={**os.environ, "PYTHONHASHSEED": seed}, timeout=60,
                              stdout=subprocess.PIPE).stdout

    now, tomorrow = ([line for line in text.splitlines() if "::" in line]
                     for text in (found("0", "1"), found("86400", "2")))
    assert len(now) > 100 and now == tomorrow


def test_an_archive_that_is_configured_twice_is_taken_once_with_its_key(tmp_path):
    """As on a machine whose sources.list was there before its .sources. apt takes both with a
    warning; of another suite it refuses them, as one has a key and the other has none."""
    release = subprocess.run(["sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME"], text=True,
                             capture_output=True).stdout.strip()
    etc, out = tmp_path / "apt", tmp_path / "out"
    (etc / "sources.list.d").mkdir(parents=True)
    out.mkdir()
    (etc / "sources.list.d/debian.sources").write_text(
        f"Types: deb\nURIs: http://one.invalid/debian/\nSuites: {release}\nComponents: main\n"
        "Signed-By: /key\n")
    (etc / "sources.list").write_text(f"deb http://one.invalid/debian {release} main\n"
                                      f"deb [arch=amd64] http://two.invalid/debian {release} main\n"
                                      "deb http://three.invalid/debian other main\n")
    done = subprocess.run(["bash", "-c", 'source scripts/apt-private; sources_for unstable "$0"',
                           out], cwd=ROOT, env={**os.environ, "ETC_APT": str(etc)}, text=True,
                          capture_output=True, timeout=20)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (out / "lines.list").read_text() == ("deb [arch=amd64] http://two.invalid/debian "
                                                "unstable main\n")
    stanzas = (out / "deb822.sources").read_text()
    assert stanzas.count("URIs:") == 1 and "Suites: unstable" in stanzas
    assert "Signed-By: /key" in stanzas
