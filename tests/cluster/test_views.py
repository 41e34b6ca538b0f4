# SPDX-License-Identifier: GPL-2.0-or-later
"""See what happens: a job's story, what the machines hold, and the debug log of a move."""
import json
import os
import re
import subprocess

import pytest

from codes import refused
from conftest import Market, bring_up, read_text, until

SLEEP = ["sh", "-c", "echo up; read x; exit 3"]


@pytest.fixture(scope="module")
def standing(fit):
    """Its daemons log at level debug."""
    os.environ["SOUK_LOG"] = "debug"
    try:
        yield from bring_up(Market("--nodes", "3", "--speeds", "100,80,60"))
    finally:
        del os.environ["SOUK_LOG"]


def story(market, id, *options):
    return json.loads(
        market.tool("marketctl", *options, "--json", "job", id, "--story").stdout)["steps"]


def moved(market, *options):
    job = market.srun("--node", "n1", "-p", 50, *options, *SLEEP, stdin=subprocess.PIPE)
    job.printed(1)
    here = market.until_runs(job.id)["where"]
    there = next(n for n in ("n2", "n3") if n != here)
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    return job, here, there


def test_a_job_has_a_story_that_outlives_a_restart_of_its_home(market, tmp_path):
    job, here, there = moved(market, "--log", tmp_path / "log")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    steps = story(market, job.id, "--node", "n1")  # from its home alone
    kinds = [s["step"] for s in steps if s["step"] != "priced"]
    assert (kinds == ["submitted", "started", "moved", "frozen"] and
            steps[1]["step"] == "priced" and steps[1]["price"] > 0), steps
    move = next(s for s in steps if s["step"] == "moved")
    assert (move["from"], move["node"], move["form"]) == (here, there, "stop-and-copy")
    parts = [move[p + "_ms"] for p in ("sent", "restored", "decided", "running")
             if p + "_ms" in move]
    assert (len(parts) >= 3 and
            abs(sum(parts) - move["pause_ms"]) < 0.01 <= move["pause_ms"] <= move["total_ms"]), move
    assert next(s for s in steps if s["step"] == "frozen")["bytes"] > 0
    times = [s["at_unix_s"] for s in steps]
    assert times == sorted(times)
    market.kill_daemon("n1")
    # n1 is the home, and has started again. The market asks it for the story, which lies on its
    # disk.
    assert [s["step"] for s in story(market, job.id) if s["step"] != "priced"] == kinds
    market.tool("marketctl", "release", job.id)
    market.until_runs(job.id)
    job.process.stdin.write(b"x\n")
    job.process.stdin.close()
    assert job.wait() == 3
    last = until("its end is told", lambda: [s for s in story(market, job.id, "--node", "n2")
                                             if s["step"] == "finished"])
    assert last[0]["at_unix_s"] >= times[-1]
    text = market.tool("marketctl", "job", job.id, "--story").stdout
    assert re.search(rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}  moved from {here} to {there}: "
                     rf"stop-and-copy, .*, pause [\d.]+ ms \(.*\), [\d.]+ ms in all: .*operator",
                     text,
                     re.M), text
    log = read_text(tmp_path / "log").splitlines()
    assert (log[0].endswith(f" job {job.id} submitted") and
            any(" started on " in line for line in log)), log
    assert any(re.search(rf" moved from {here} to {there}, pause [\d.]+ ms "
                         rf"\(stop-and-copy.*restored", line) for line in log), log
    assert log[-1].endswith("finished, exit status 3")


def test_what_has_no_story_says_why(market):
    for id, code in (("n1.99999", "not_found"), ("n9.1", "away")):
        refused(market.tool("marketctl", "job", id, "--story", check=False), code)


def test_the_machines_tell_what_they_hold_to_root_alone(market):
    job, here, there = moved(market)
    held = until("the process is known",
                 lambda: (h := market.ctl("pvdctl", "--node", there, "guests")) and
                 any(e["kind"] == "guest" and "pid" in e for e in h) and h)
    guest = next(e for e in held if e["kind"] == "guest" and e["job"] == job.id)
    assert guest["state"] == "running" and guest["epoch"] == 2 and guest["pid"] > 0
    home = market.ctl("pvdctl", "--node", "n1", "guests", job.id)
    mine = next(e for e in home if e["kind"] == "job")
    assert ((mine["phase"], mine["at"]) == ("running", f"{there}.2") and
            "clock_runs" in mine["flags"])
    record = mine["record"]
    assert (record["id"], record["phase"], record["epoch"]) == (job.id, "running", 2)
    assert record["at"]["node"] == there and record["spec"]["argv"]
    assert all("record" not in e for e in held)
    text = market.tool("pvdctl", "--node", there, "guests").stdout
    assert re.search(rf"^{job.id}\.2 +running", text, re.M), text
    assert "phase:" in market.tool("pvdctl", "--node", "n1", "guests", job.id).stdout
    dump = market.ctl("marketctl", "dump")
    assert dump[0]["kind"] == "market" and dump[0]["nodes"] == 3
    assert [e["node"] for e in dump if e["kind"] == "node"] == ["n1", "n2", "n3"]
    of_job = next(e for e in dump if e["kind"] == "job" and e["job"] == job.id)
    assert (of_job["phase"] == "running" and of_job["claims"] == [there] and
            of_job["hold"] == "at_node")
    assert re.search(rf"^{job.id} +running +{there}", market.tool("marketctl", "dump").stdout, re.M)
    for tool, *args in (["pvdctl", "guests"], ["marketctl", "dump"],
                        ["marketctl", "--node", "n2", "dump"]):
        node = ["--node", "n1"] if tool == "pvdctl" else []
        done = market.tool(tool, *node, *args, check=False, user=65534, group=65534,
                           extra_groups=[])
        refused(done, "not_allowed")


def test_the_debug_log_of_a_move_is_its_story(market):
    job, here, there = moved(market)
    logs = {node: read_text(f"{market.run_dir}/{node}/log")
            for node in ("n1", "n2", "n3", "market")}
    of_job = {node: [line for line in text.splitlines() if f"JOB={job.id} " in line + " "]
              for node, text in logs.items()}

    def in_order(lines, *steps):
        left = iter(lines)
        for step in steps:
            assert any(step in line
                       for line in left), f"no {step} in its place in\n" + "\n".join(lines)

    in_order(of_job["market"], f"market input STEP=move JOB={job.id} NODE={there}",
             "market state STEP=running.ordered_run",
             f"market output STEP=order.run JOB={job.id} NODE=n1 TO={there}",
             "market input STEP=report.moving")
    in_order(of_job["n1"], f"home input STEP=order.run JOB={job.id} NODE={there}",
             "home state STEP=moving.prepare",
             f"home output STEP=command.prepare JOB={job.id} EPOCH=2 NODE={there}",
             "home state STEP=moving.transfer",
             f"home output STEP=command.ship JOB={job.id} EPOCH=1 NODE={here} TO={there}.2",
             f"home input STEP=event.held JOB={job.id} EPOCH=2 NODE={there}",
             "home state STEP=moving.release", "home output STEP=command.release",
             f"home input STEP=event.running JOB={job.id} EPOCH=2 NODE={there}",
             "home output STEP=tell.moved")
    in_order(of_job[here], "guest input STEP=command.ship", "guest output STEP=do.send_precopy",
             "guest input STEP=dump_held", "guest state STEP=dumping.ship.held",
             "guest output STEP=do.ship", "guest input STEP=shipped",
             "guest output STEP=event.shipped")
    in_order(of_job[there], "guest input STEP=command.prepare",
             "guest output STEP=do.create_capsule", "guest output STEP=event.prepared",
             "guest input STEP=image_received", "guest output STEP=do.restore",
             "guest state STEP=held", "guest input STEP=command.release",
             "guest output STEP=do.finish_restore", "guest output STEP=event.running")
    assert all(re.match(r"\S+ \S+ (agentd|marketd): ", line) for lines in of_job.values()
               for line in lines)
