# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds of tasks that name the tests that failed in them, so that each can be run again alone:
suites of the unit tests, files of pytest, CRIU's own tests; and fuzz targets, whose failures are
never run again, as a reproducer tells more."""
import base64
import glob
import os
import re
import shutil
import sys
import textwrap
import xml.etree.ElementTree as xml

from task import Failure, Task, reasons, shorten

CHECKS = re.compile(r"^\d+%: Checks: (\d+), Failures: \d+, Errors: \d+$", re.M)
# tests/unit/test_home.cpp:44:F:home:a_home_tells_a_move:0: what Check says
CHECK_FAILED = re.compile(r"^[^\s:]+:\d+:[FE]:[^:\n]*:([^:\n]+):-?\d+: ", re.M)
SANITIZER = re.compile(r"^==\d+==\s?(ERROR|WARNING): \w+Sanitizer|^WARNING: ThreadSanitizer"
                       r"|:\d+:\d+: runtime error: ", re.M)
ZDTM_FAILED = re.compile(r"^  ([^ ]+) \(([a-z, ]+)\): ")


class Suite(Task):
    """A suite of the unit tests, or one test of it. A suite may fail by what it leaves behind,
    although its tests pass."""
    def __init__(self, build, suite, test=None):
        which = {"CK_RUN_SUITE": suite, "SOUK_TEST": test}
        super().__init__("unit", test or suite, [f"{build}/tests/unit"],
                         {name: value for name, value in which.items() if value})
        self.build, self.suite = build, suite

    def found(self, output):
        checks = CHECKS.search(output)
        if self.status == 0 and checks and checks[1] != "0":
            return []
        stands = list(CHECK_FAILED.finditer(output))
        ends = [stand.start() for stand in stands[1:]] + [len(output)]
        by_test = {}
        for stand, end in zip(stands, ends):
            by_test.setdefault(stand[1], output[stand.start():end].splitlines())
        if not by_test:  # its end
            return [self.failed(output, None, output.splitlines()[-10:])]
        return [self.failed(output, test, words) for test, words in by_test.items()]

    def said(self, output):
        return f"{CHECKS.search(output)[1]} passed"

    def failed(self, output, test, words):
        again = None if SANITIZER.search(output) else Suite(self.build, self.suite, test)
        return Failure(test or self.suite, shorten(words), again)


PROGRAMS = "/var/lib/souk-check"  # where tests find the programs that others could not reach


def reachable(directory):
    """Whether each user may go there."""
    return directory == "/" or (os.stat(directory).st_mode & 0o001 and
                                reachable(os.path.dirname(directory)))


def in_sight(programs, command):
    """The directory of programs that tests are to know, and the command that runs them. Tests run
    programs as other users, who see nothing of a clone below /root: they see it elsewhere, in a
    mount namespace of the tests, and not in /run, of which jobs have their own."""
    if os.geteuid() != 0 or not os.path.isdir(programs) or reachable(programs):
        return programs, command
    os.makedirs(PROGRAMS, exist_ok=True)
    return PROGRAMS, ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1"; shift; exec "$@"',
                      programs, PROGRAMS, *command]


class PythonFile(Task):
    """A file of tests under pytest, or one test of it. Sanitizers write what they report of the
    programs into files, as a daemon's stderr is its log and it is started again."""
    def __init__(self, part, build, path):
        super().__init__(part, os.path.relpath(path, f"tests/{part}"),
                         [sys.executable, "-m", "pytest", "-v", "-rfEs", path])
        self.build, self.file, self.words = build, path.split("::")[0], self.command

    def prepare(self, path):
        self.xml, self.reports = f"{path}.xml", os.path.abspath(f"{path}.reports")
        if os.path.exists(self.xml):
            os.remove(self.xml)
        shutil.rmtree(self.reports, ignore_errors=True)
        os.mkdir(self.reports)
        programs, self.command = in_sight(os.path.abspath(f"{self.build}/bin"),
                                          [*self.words, f"--junitxml={self.xml}"])
        log = f"log_path={self.reports}/report:log_exe_name=1"
        self.environment = {"SOUK_BIN": programs, "ASAN_OPTIONS": log, "TSAN_OPTIONS": log,
                            "UBSAN_OPTIONS": "print_stacktrace=1"}

    def found(self, output):
        reports = []
        for path in sorted(glob.glob(f"{self.reports}/*")):
            with open(path, errors="replace") as f:
                reports += f.read().splitlines()[:100]
        if reports:
            return [Failure(self.name, shorten(reports))]
        found = {}
        for case in self.cases():
            said = case.find("failure") if case.find("failure") is not None else case.find("error")
            if said is None or not case.get("classname"):  # or its file cannot be read
                continue
            words = textwrap.dedent("\n".join(re.findall("^E   (.*)", said.text or "", re.M)))
            again = PythonFile(self.part, self.build, f"{self.file}::{case.get('name')}")
            found.setdefault(again.name, Failure(again.name, shorten(
                (words or said.get("message", "")).splitlines()), again))
        return list(found.values())

    def cases(self):
        try:
            return xml.parse(self.xml).iter("testcase")
        except (FileNotFoundError, xml.ParseError):  # it was killed
            return []

    def said(self, output):
        return output.splitlines()[-1].strip("= ").partition(" in ")[0]

    def stood(self, output):
        tests = [line for line in output.splitlines() if "::" in line]
        return tests[-1:]


class Zdtm(Task):
    """CRIU's own tests: a sample of them, or one in some forms of a move."""
    def __init__(self, build, *which):
        super().__init__("zdtm", " ".join(which).strip("-"), ["scripts/check-zdtm", build, *which])
        self.build = build

    def found(self, output):
        differ = output.partition("\npasses under plain CRIU and not as a job: ")[2]
        return [Failure(f"{found[1]} ({found[2]})", [line.strip()],
                        Zdtm(self.build, found[1], "--forms", found[2].replace(" ", "")))
                for line in differ.splitlines() if (found := ZDTM_FAILED.match(line))]


class FuzzTarget(Task):
    """A target under libFuzzer, from a copy of its corpus."""
    def __init__(self, build, name, seconds):
        self.build, self.target, self.seeds = (build, f"{build}/fuzz/{name}",
                                               f"tests/fuzz/corpus/{name}")
        self.words = [self.target, f"-max_total_time={seconds}", "-timeout=10",
                      "-rss_limit_mb=2048", "-print_final_stats=1"]
        super().__init__("fuzz", name, self.words)

    def prepare(self, path):
        self.work, self.corpus = f"{path}.work", f"{path}.work/corpus"
        shutil.rmtree(self.work, ignore_errors=True)
        os.mkdir(self.work)
        os.mkdir(f"{self.work}/found")
        if os.path.isdir(self.seeds):
            shutil.copytree(self.seeds, self.corpus)
        self.command = [*self.words, f"-artifact_prefix={self.work}/found/", self.corpus]

    def found(self, output):
        words = [line for line in output.splitlines()
                 if re.search("ERROR|runtime error|SUMMARY|MUST", line)]
        if not glob.glob(f"{self.seeds}/*"):
            words.append(f"{self.name} has no seeds in {self.seeds}")
        elif self.status == 0:
            return []
        for path in sorted(glob.glob(f"{self.work}/found/*")):
            keep = f"{self.build}/fuzz-{self.name}-{os.path.basename(path)}"
            shutil.copy(path, keep)
            with open(path, "rb") as f:
                content = base64.b64encode(f.read()).decode()[:2000]
            words.append(f"reproducer: {keep}; replay: {self.target} {keep}; base64: {content}")
        return [Failure(self.name, shorten(words or reasons(output)))]

    def said(self, output):
        runs = re.search(r"^stat::number_of_executed_units: *(\d+)", output, re.M)
        return f"{runs[1] if runs else 'no'} runs, corpus of {len(os.listdir(self.corpus))}"
