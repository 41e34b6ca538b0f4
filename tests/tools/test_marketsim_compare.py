# SPDX-License-Identifier: GPL-2.0-or-later
# marketsim compare, its pictures and its page.
import hashlib
import html.parser
import json
import math
import os
import pty
import shutil
import subprocess

import pytest

from conftest import BIN
from fake import LIMIT


def test_every_parameter_of_a_comparison_is_tried_and_the_json_says_which(tool, files):
    status, out, _ = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "-s",
                          "greedy_migration", "--pricings", "uniform", "--k", "0,1000",
                          "--moves-max", "0,2", "--min-stay", "7", "--quantum", "20", "--json", "-")
    rows = json.loads(out)["variants"]
    assert status == 0 and [row["variant"] for row in rows] == [
        f"greedy_migration/uniform k={k} moves-max={moves}" for k in (0, 1000) for moves in (0, 2)]
    assert [(row["k_permille"], row["moves_max"], row["min_stay_s"], row["quantum_s"])
            for row in rows] == [
                (0, 0, 7, 20), (0, 2, 7, 20), (1000, 0, 7, 20), (1000, 2, 7, 20)]
    status, out, _ = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--pricings",
                          "first,uniform", "--k", "0,1000", "--quantum", "5,9", "--json", "-")
    assert [row["variant"] for row in json.loads(out)["variants"]] == [
        "greedy_migration/first", "greedy_migration/uniform k=0", "greedy_migration/uniform k=1000",
        "proportional_share/first quantum=5", "proportional_share/first quantum=9",
        *(f"proportional_share/uniform k={k} quantum={quantum}" for k in (0, 1000)
          for quantum in (5, 9))]
    assert rows[0]["providers_surplus"] == 0 < rows[2]["providers_surplus"]
    status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--disk",
                          ",".join(["1"] * 300))
    assert status == 2 and "at most 256" in err


def test_seeds_give_means_with_confidence_intervals_as_table_json_and_csv(tool, files):
    (files / "config").write_text("use_swf = no\njobs = 40\nproviders = 2\n"
                                  "interarrival = uniform 0 60\nrun = uniform 20 200\nseed = 7\n")
    base = ["compare", "-i", "config", "-s", "mig,fcfs"]
    slowdowns = []
    for seed in range(7, 12):  # each by itself
        assert tool("marketsim", "import", "config", "-o", "w", "--seed", str(seed))[0] == 0
        out = tool("marketsim", "compare", "-j", "w.jobs", "-p", "w.providers", "-s", "mig,fcfs",
                   "--json", "-")[1]
        slowdowns.append([row["mean_slowdown"] for row in json.loads(out)["variants"]])
    status, out, err = tool("marketsim", *base, "--seeds", "5", "--json", "-", "--csv",
                            "figures.csv")
    assert (status, err) == (0, "")
    rows = [line.split(",") for line in (files / "figures.csv").read_text().splitlines()]
    assert (rows[0][:4] == ["variant", "seeds", "mean_slowdown", "mean_slowdown_ci95"] and
            rows[1][0] == '"greedy_migration/critical"')
    for i, row in enumerate(json.loads(out)["variants"]):
        values = [s[i] for s in slowdowns]
        mean = sum(values) / 5
        half = 2.7764 * (sum((v - mean) ** 2 for v in values) / 4 / 5) ** 0.5
        assert "mean_slowdown" not in row and row["solver"] == row["variant"].split("/")[0]
        assert [seed["mean_slowdown"] for seed in row["by_seed"]] == values
        told = row["over_seeds"]["mean_slowdown"]
        assert abs(told["mean"] - mean) < 1e-9 and abs(told["ci95"] - half) < 1e-9 and half > 0
        assert (abs(float(rows[i + 1][2]) - mean) < 1e-6 and
                abs(float(rows[i + 1][3]) - half) < 1e-3 and rows[i + 1][1] == "5")
    outs = {tool("marketsim", *base, "--seeds", "5", *threads)[1]
            for threads in (["--threads", "1"], ["--threads", "3"])}
    assert len(outs) == 1 and "means over 5 seeds" in outs.pop()
    one = tool("marketsim", *base, "--csv", "-")[1].splitlines()
    assert one[1].split(",")[3] == ""  # no interval of one run
    for wrong in (["compare", "-j", "jobs", "-p", "providers", "--seeds", "3"],
                  ["compare", "-j", "jobs"], [*base, "-j", "jobs"]):
        status, out, err = tool("marketsim", *wrong)
        assert (status, out, err.count("\n")) == (2, "", 1), err


def test_owners_prices_and_lies_are_compared_over_seeds(tool, files):
    (files / "config").write_text("use_swf = no\njobs = 15\nproviders = 2\nseed = 7\n"
                                  "reservation = uniform 1 8\n"
                                  "interarrival = uniform 0 300\nrun = uniform 60 3000\n")
    base = ["compare", "-i", "config", "-s", "welfare", "--seeds", "2", "--json", "-", "--owners"]
    status, out, err = tool("marketsim", *base, "fixed,auto,fixed+auto", "--lies", "4")
    rows = json.loads(out)["variants"]
    assert (status, err) == (0, "") and [row["variant"] for row in rows] == [
        f"welfare/critical owners={owners}" for owners in ("fixed", "auto", "fixed+auto")]
    for row in rows:
        told = row["by_owners"]
        assert {one["asks"] for one in told["by_owner"]} <= {"fixed", "auto"}
        assert all(one["earned"]["mean"] >= one["surplus"]["mean"] >= 0 for one in told["by_owner"])
        assert told["price"]["mean"] > 0 and told["envy_percent"]["mean"] >= 0
        assert told["welfare"]["ci95"] > 0 and told["lie_chosen_beforehand"]["cases"] > 0
        assert {"bid x 0.20", "late 60 s"} <= {one["lie"] for one in told["each_lie"]}
    status, out, err = tool("marketsim", *base, "fixed,auto", "--strategies", "truthful")
    assert (status, err) == (0, "") and [
        row["variant"] for row in json.loads(out)["variants"]] == [
        "welfare/critical truthful owners=fixed", "welfare/critical truthful owners=auto"]
    text = tool("marketsim", "compare", "-i", "config", "--owners", "auto")[1]
    assert "proportional_share/critical owners=auto" in text and "earned" in text
    for wrong in ([*base, "free"], ["compare", "-i", "config", "--lies", "3"]):
        status, out, err = tool("marketsim", *wrong)
        assert (status, out, err.count("\n")) == (2, "", 1), err


def test_what_is_suspended_stands_in_memory_first(tool, files):
    (files / "config").write_text("use_swf = no\njobs = 40\nproviders = 2\nmemory = fix 100\n"
                                  "interarrival = uniform 0 60\nrun = uniform 20 400\nseed = 7\n")
    figures = []
    for more in ([], ["--two-stage"]):
        status, out, err = tool("marketsim", "compare", "-i", "config", "-s", "proportional_share",
                                *more, "--json", "-")
        assert (status, err) == (0, "")
        figures += json.loads(out)["variants"]
    disk, memory = figures
    assert "stops" not in disk and memory["two_stage"] and memory["resumes"] <= memory["stops"]
    assert memory["moved_mb"] < disk["moved_mb"] / 2 and memory["freezes"] < disk["freezes"] / 2
    status, out, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-s",
                            str(BIN / "solver"), "--two-stage")
    assert status != 0 and "not the market's own solver" in err and err.count("\n") == 1


def test_a_comparison_is_drawn_where_there_is_gnuplot(tool, files):
    if shutil.which("gnuplot") is None:
        pytest.skip("gnuplot is not installed")
    for kind, magic in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--plot",
                              f"picture.{kind}")
        assert (status, err) == (0, "")
        drawn = sorted(name for name in os.listdir() if name.startswith("picture"))
        assert drawn == [f"picture-{part}.{kind}"
                         for part in ("gantt-1", "gantt-2", "utilisation", "value")]
        for name in drawn:
            assert (files / name).read_bytes().startswith(magic)
            os.unlink(name)


def test_without_gnuplot_a_comparison_to_draw_fails_before_it_runs(tool, files):
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "-o", "table",
                            "--plot", "picture.svg", env={**os.environ, "PATH": str(files)})
    assert (status, out) == (1, "")
    assert (err == "marketsim compare: --plot needs gnuplot, which is not installed: apt-get "
            "install gnuplot-nox\n")
    assert sorted(os.listdir()) == before


def test_a_gnuplot_that_fails_leaves_no_picture(tool, files):
    os.mkdir("bin")
    (files / "bin" / "gnuplot").write_text("#!/bin/sh\nexit 3\n")
    os.chmod("bin/gnuplot", 0o755)
    status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--plot",
                          "picture.svg", env={**os.environ, "PATH": f"{files}/bin:/usr/bin:/bin"})
    assert (status, err) == (1, "marketsim compare: picture-value.svg: gnuplot failed\n")
    assert not any(name.startswith("picture") for name in os.listdir())


def test_progress_is_shown_on_a_terminal_alone(files):
    ours, theirs = pty.openpty()
    command = [BIN / "marketsim", "compare", "-j", "jobs", "-p", "providers", "--threads", "1"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=theirs, timeout=LIMIT)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the terminal's other end is closed
            pass
    finally:
        os.close(ours)
    assert (done.returncode == 0 and b"] 0 of 2" in shown and b"#] 2 of 2" in shown and
            shown.endswith(b"\r\x1b[K"))
    assert b"of 2" not in done.stdout


def test_a_comparison_says_what_it_was_made_of_and_how_variants_differ_seed_by_seed(tool, files):
    log = "; MaxProcs: 4\n" + "".join(
        f"{i} {37 * i} -1 {50 + 31 * i % 200} 1 -1 -1 1 -1 -1 1 1 1 -1 -1 -1 -1 -1\n"
        for i in range(1, 41))
    (files / "log.swf").write_text(log)
    text = "trace = log.swf\nproviders = 2\nspeed = uniform 50 200\nseed = 11\n"
    (files / "config").write_text(text)
    base = ["compare", "-i", "config", "-s", "fcfs,sjf,wfp", "--seeds", "4"]
    status, out, err = tool("marketsim", *base, "--json", "-", "--per-job", "jobs.csv")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert tool("marketsim", "--version")[1].strip().endswith(f" {told['marketsim']}")
    workload = told["workload"]
    assert workload["trace_sha256"] == hashlib.sha256(log.encode()).hexdigest()
    assert workload["configuration_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert workload["configuration_text"] == text
    assert [(d["seed"], d["jobs"], d["providers"]) for d in workload["drawn"]] == [
        (seed, 40, 2) for seed in range(11, 15)]
    first, *others = told["variants"]
    assert "more_by_seed" not in first and "knows_run_times" not in first
    for row in others:
        assert row["knows_run_times"] and row["more_by_seed"]["than"] == "fcfs/critical"
        for figure in ("mean_wait", "bounded_slowdown_p95", "social_welfare"):
            more = [a[figure] - b[figure] for a, b in zip(row["by_seed"], first["by_seed"])]
            mean = sum(more) / 4
            half = 3.1824 * (sum((m - mean) ** 2 for m in more) / 3 / 4) ** 0.5
            got = row["more_by_seed"][figure]
            assert got["mean"] == pytest.approx(mean, abs=1e-9)
            assert got["ci95"] == pytest.approx(half, rel=1e-4, abs=1e-9)
    # each job of each variant and seed, from which the figures can be made anew
    header, *rows = [line.split(",") for line in (files / "jobs.csv").read_text().splitlines()]
    assert header[:3] == ["variant", "seed", "id"] and len(rows) == 3 * 4 * 40
    at = {name: i for i, name in enumerate(header)}
    for row in told["variants"]:
        for seed, report in zip(range(11, 15), row["by_seed"]):
            mine = [r for r in rows if r[0] == f'"{row["variant"]}"' and r[1] == str(seed)]
            waits = sorted(int(r[at["first_run_s"]]) - int(r[at["start_s"]]) for r in mine)
            assert report["mean_wait"] == pytest.approx(sum(waits) / 40)
            assert report["wait_p95"] == waits[math.ceil(0.95 * 40) - 1]
            slow = sorted(float(r[at["bounded_slowdown"]]) for r in mine)
            assert report["bounded_slowdown_p50"] == pytest.approx(slow[19], abs=1e-6)
    table = tool("marketsim", *base)[1]
    assert "seed by seed" in table and "wfp knows the true run time" in table
    (files / "all.json").write_text(out)
    page = tool("marketsim", "report", "all.json")[1]
    assert workload["trace_sha256"] in page and "Differences from fcfs/critical" in page
    assert "11 to 14" in page and "providers = 2" in page and "@media print" in page
    # of files there is the digest of each
    out = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--json", "-")[1]
    workload = json.loads(out)["workload"]
    assert workload["jobs_file"] == "jobs" and workload["jobs_file_sha256"] == hashlib.sha256(
        (files / "jobs").read_bytes()).hexdigest()


class Page(html.parser.HTMLParser):
    """The elements of a page, which must all be closed; what it would load; its tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.loads, self.rows, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.loads += [(tag, k, v) for k, v in attributes
                       if k in ("src", "href", "srcset", "data") and not v.startswith("#")]
        if tag == "tr":
            self.rows.append([])
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(text)
        self.texts.append(text)


def test_a_comparison_becomes_one_page_that_needs_nothing_else(tool, files):
    (files / "config").write_text("use_swf = no\njobs = 40\nproviders = 2\n"
                                  "interarrival = uniform 0 60\nrun = uniform 20 200\nseed = 7\n")
    out = tool("marketsim", "compare", "-i", "config", "-s", "mig,fcfs", "--seeds", "3", "--json",
               "all.json", "--csv", "-")[1]
    assert tool("marketsim", "report", "all.json", "-o", "page.html", "--title",
                "<b>one & two") == (0, "", "")
    text = (files / "page.html").read_text()
    page = Page(text)
    assert page.loads == [] and "@import" not in text and "url(" not in text
    assert not any(tag in ("script", "iframe", "b") for tag, _ in page.seen)
    assert "<b>one & two" in page.texts
    figures = {row[0]: row[2:] for row in page.rows if len(row) == 4}
    header, *rows = [line.split(",") for line in out.splitlines()]
    assert figures["Figure"] == [row[0].strip('"') for row in rows]
    for i, name in enumerate(header[2::2]):
        for told, row in zip(figures[name.replace("_", " ")], rows):
            mean, half = (float(part) for part in told.split(" ± "))
            assert mean == pytest.approx(float(row[2 + 2 * i]), rel=1e-4, abs=1e-9)
            assert half == pytest.approx(float(row[3 + 2 * i] or 0), rel=1e-2, abs=1e-9)
    assert "Mean bounded slowdown by what a job is worth" in text
    # a picture for each figure, with a bar and an interval for each variant
    pictures = [a for tag, a in page.seen if tag == "svg"]
    assert len(pictures) == len(header[2::2]) and all(a["role"] == "img" for a in pictures)
    assert sum(tag == "rect" for tag, _ in page.seen) == len(rows) * len(pictures)
    intervals = [a for tag, a in page.seen if a.get("class") == "interval"]
    assert len(intervals) == len(rows) * len(pictures)
    assert all(float(a["x1"]) <= float(a["x2"]) for a in intervals)
    again = tool("marketsim", "report", "all.json", "--title", "<b>one & two")
    assert again == (0, text, "")


@pytest.mark.parametrize("given,why", [("", "it is no comparison"), ("{}", "it is no comparison"),
                                       ("[]", "it is no comparison"), ("[1]", "has no name"),
                                       ('[{"variant":"a","by_value":[1]}]', "no objects")])
def test_what_is_no_comparison_becomes_no_page(tool, files, given, why):
    (files / "some").write_text(given)
    status, out, err = tool("marketsim", "report", "some", "-o", "page.html")
    assert (status, out) == (1, "") and err.startswith("marketsim report: some: ") and why in err
    assert err.count("\n") == 1 and not (files / "page.html").exists()
