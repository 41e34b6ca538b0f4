# SPDX-License-Identifier: GPL-2.0-or-later
"""A job that is moved, frozen and thawed while it runs ends as if it had never been touched."""
import glob
import os
import random
import subprocess

import pytest

import programs
from conftest import BIN, Late, read_text, until

NODES = ["n1", "n2", "n3"]
TIMES = 30


def shove(market, id, seed, times, between=None):
    """Moves (two of three) or freezes and thaws elsewhere, as soon as the job runs again; the
    number done before it ended."""
    r = random.Random(seed)
    for done in range(times):
        if between:
            between()
        job = until("it runs", lambda: (j := market.job(id)) and
                    (j["status"] == "finish" or j["status"] == "run" and "going_to" not in j) and j)
        if job["status"] == "finish":
            return done
        there = r.choice([n for n in NODES if n != job["where"]])
        if r.randrange(3):
            steps = [("move", there, lambda j: j["status"] == "run" and j["where"] == there)]
        else:
            steps = [("freeze", None, lambda j: j["status"] == "suspend"),
                     ("thaw", there, lambda j: j["status"] == "run" and j["where"] == there)]
        for verb, node, seen in steps:
            if market.tool("marketctl", "--hold", verb, id, *([node] if node else []),
                           check=False).returncode != 0:
                assert market.job(id)["status"] == "finish"
                return done
            if market.until_job(id, verb,
                                lambda j: j["status"] == "finish" or seen(j))["status"] == "finish":
                return done
    market.tool("marketctl", "release", id, check=False)
    return times


def check_moved(market, id, times):
    last = market.job(id)
    assert last["failed_moves"] == 0, last
    assert last["migrations"] + last["freezes"] >= times


def test_a_job_that_checks_its_memory_ends_the_same_after_thirty_moves_and_freezes(market):
    for size in (1, 2, 4, 8):
        command = [f"{BIN}/testload", "--steps", str(8000 * size), "--print-every", "40",
                   "--digest", "--memory", "16"]
        job = market.srun("-p", 50, *command)
        done = shove(market, job.id, 11, TIMES)
        assert job.wait(150) == 0
        by_hand = subprocess.run(command, capture_output=True, timeout=150)
        assert bytes(job.out) == by_hand.stdout and by_hand.stdout
        assert not job.told
        if done == TIMES:
            return check_moved(market, job.id, TIMES)
    raise Late(f"the job ended after {done} of {TIMES} moves, however long it was made")


# Numbers from 1 on through three pipes that are always full. What is printed depends on every line
# before it. The first starts a program for each thousand, until the pipeline's own input ends.
COUNT = 'i=0; while ! read -t 0; do seq $((i * 1000 + 1)) $(((i + 1) * 1000)); i=$((i + 1)); done'
DIGEST = ("awk '{s=(s*31+$1)%1000003; print s, $1}' | sed 's/7/x/g' |"
          " awk '{n++; t=(t*17+length($0)+$2)%1000003; if (n%20000==0) {print n, t; fflush()}} END "
          "{print n, t}'")


def test_a_pipeline_of_processes_ends_the_same_after_thirty_moves_and_freezes(market):
    job = market.srun("-p", 50, "bash", "-c", f"{{ {COUNT}; }} | {DIGEST}", stdin=subprocess.PIPE)
    job.printed(1)
    assert shove(market, job.id, 12, TIMES, between=lambda: job.printed(job.lines() + 1)) == TIMES
    job.process.stdin.close()
    assert job.wait(150) == 0
    assert not job.told
    check_moved(market, job.id, TIMES)
    total = int(bytes(job.out).split()[-2])
    by_hand = subprocess.run(["bash", "-c", f"seq {total} | {DIGEST}"], capture_output=True,
                             timeout=150)
    assert bytes(job.out) == by_hand.stdout


def test_a_python_program_with_threads_ends_the_same_after_thirty_moves_and_freezes(market):
    job = market.srun("-p", 50, *programs.chain_job(4), stdin=subprocess.PIPE)
    job.printed(5)
    assert shove(market, job.id, 13, TIMES, between=lambda: job.printed(job.lines() + 10)) == TIMES
    job.printed(job.lines() + 5)
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out, 4)
    check_moved(market, job.id, TIMES)


def test_input_sent_while_a_job_moves_arrives_whole_and_in_order(market):
    job = market.srun("-p", 50, "sh", "-c", "while read x; do echo got $x; done; echo end",
                      stdin=subprocess.PIPE)
    market.until_runs(job.id)
    sent = 0

    def feed():
        nonlocal sent
        for _ in range(200):
            sent += 1
            job.process.stdin.write(b"%d\n" % sent)
        job.process.stdin.flush()
    assert shove(market, job.id, 14, 8, between=feed) == 8
    job.process.stdin.close()
    assert job.wait() == 0
    assert bytes(job.out).decode() == "".join(f"got {i}\n" for i in range(1, sent + 1)) + "end\n"


@pytest.mark.parametrize("form, size", [("auto", 4), ("safe", 16), ("fast", 16)])
def test_no_image_of_a_job_that_runs_is_kept(market, form, size):
    def images():
        kept = [glob.glob(f"{market.run_dir}/state/{node}/{kind}/{job.id}.*") for node in NODES
                for kind in ("ram", "images")]
        return [path for paths in kept for path in paths]

    job = market.srun("--move", form, "-p", 50, f"{BIN}/testload", "--time", "1000", "--memory",
                      size, "--print-every", "100")
    job.printed(1)
    for there in ("n2", "n3"):
        market.until_runs(job.id)
        market.tool("marketctl", "--hold", "move", job.id, there)
        market.until_runs(job.id, there)
        until("it is dropped", lambda: not images())
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    assert len(images()) == 1
    market.tool("marketctl", "--hold", "thaw", job.id, "n2")
    market.until_runs(job.id, "n2")
    until("it is dropped", lambda: not images())


def test_what_keeps_a_job_from_moving_is_told_while_it_runs_and_when_it_is_gone(market):
    code = ("import ctypes, os, sys; sys.stdin.readline()\n"
            "fd = ctypes.CDLL(None).syscall(425, 4, (ctypes.c_char * 120)())\n"
            "assert fd >= 0\n"
            "print('open', flush=True); sys.stdin.readline()\n"
            "os.close(fd); print('closed', flush=True); sys.stdin.readline(); sys.exit(3)")
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", code, stdin=subprocess.PIPE)
    # Opened after the first look, which tells the pid too: another one comes soon.
    market.until_job(job.id, "has a pid", lambda j: j.get("pid"))
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    until("it has an io_uring", lambda: b"open\n" in job.out)
    told = market.until_job(job.id, "it is known", lambda j: not j.get("can_move", True))
    assert told["cannot_move_code"] == "holds_io_uring", told
    # An order is refused for the same reason, and the job goes on.
    there = next(n for n in NODES if n != told["where"])
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_job(job.id, "it is refused",
                     lambda j: j["failed_moves"] >= 1 and
                     j["reason"].get("cause_code") == "holds_io_uring")
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    until("it is closed", lambda: b"closed\n" in job.out)
    market.until_job(job.id, "it has moved", lambda j: j["status"] == "run" and j["where"] == there,
                     90)
    market.until_job(job.id, "it can move", lambda j: j.get("can_move"))  # as its new node says
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait() == 3


def test_a_frozen_job_whose_image_is_damaged_stays_frozen_until_it_is_whole_again(market, tmp_path):
    command = [f"{BIN}/testload", "--steps", "8000", "--print-every", "100", "--digest", "--memory",
               "48"]
    enough = tmp_path / "enough"
    job = market.srun("-p", 50, *command, "--until", enough)
    job.printed(2)
    pid = market.until_job(job.id, "has a pid", lambda j: j.get("pid"))["pid"]
    assert b"testload" in open(f"/proc/{pid}/cmdline", "rb").read()
    market.tool("marketctl", "--hold", "freeze", job.id)
    where = market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")["where"]
    [pages] = glob.glob(f"{market.daemon(where)['state_dir']}/images/*/souk-pages")
    assert os.stat(pages).st_size > 48 << 20 and os.stat(pages).st_mode & 0o77 == 0

    def flip():
        with open(pages, "r+b") as f:
            f.seek(30 << 20)
            byte = f.read(1)[0]
            f.seek(30 << 20)
            f.write(bytes([byte ^ 4]))

    flip()
    for there in where, next(n for n in market.nodes() if n != where):
        failed = market.job(job.id)["failed_moves"]
        market.tool("marketctl", "--hold", "thaw", job.id, there)
        market.until_job(job.id, "is refused", lambda j: j["failed_moves"] > failed and
                         j["last_failed_code"] == "image_refused")
        market.tool("marketctl", "--hold", "freeze", job.id)  # and it is not tried again
        assert market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend" and
                                "going_to" not in j)["where"] == where
    flip()
    market.tool("marketctl", "release", job.id)
    # A thaw that fails is repeated a little later, so the process that the market names may not be
    # the job's yet.
    market.until_job(job.id, "runs again, as the process that is told",
                     lambda j: "testload" in read_text(f"/proc/{j.get('pid')}/cmdline"))
    enough.touch()
    assert job.wait(150) == 0
    assert bytes(job.out) == subprocess.run(command, capture_output=True, timeout=150).stdout


def test_a_frozen_job_whose_open_file_is_away_names_it_and_goes_on_when_it_is_back(market,
                                                                                   tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("first\nlast\n" + " " * (1 << 20))  # one that is smaller goes along
    job = market.srun("-p", 50, "/usr/bin/python3", "-uc",
                      "import sys; f = open(sys.argv[1]); print(f.readline(), end=''); input();"
                      "print(f.readline(), end='')", kept, stdin=subprocess.PIPE)
    until("it has read", lambda: b"first\n" in job.out)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    kept.rename(tmp_path / "away")
    market.tool("marketctl", "release", job.id)
    assert str(kept) in market.until_step(job.id, why_code="file_not_opened")["why"]
    (tmp_path / "away").rename(kept)
    market.until_runs(job.id)
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait(40) == 0
    assert bytes(job.out) == b"first\nlast\n"
