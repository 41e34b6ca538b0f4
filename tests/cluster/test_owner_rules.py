# SPDX-License-Identifier: GPL-2.0-or-later
"""The owner's rules on real daemons: frames, zones, prices by the hour, evictions and bans."""
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import alive, read_text, until

NODES = ["n1", "n2", "n3"]
# Forks twice, leaves its session, ignores what it can, and leaves each child behind.
SPREADS = """
import os, signal, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(3600)
        os._exit(0)
print("spread", flush=True)
while True: time.sleep(3600)
"""


def refused(market, node, words, *args):
    before = market.ctl("pvdctl", "--node", node, "frames")
    done = market.tool("pvdctl", "--node", node, *args, check=False)
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done
    assert market.ctl("pvdctl", "--node", node, "frames") == before


def test_frames_are_listed_added_and_removed_and_bad_ones_change_nothing(market):
    pv = lambda *args: market.ctl("pvdctl", "--node", "n3", *args)
    try:
        hour = time.gmtime().tm_hour
        other = f"daily {(hour + 12) % 24}:00-{(hour + 13) % 24}:00"
        assert pv("frames", "zone", "UTC")["zone"] == "UTC"
        told = pv("frames", "add", other)
        assert [f["frame"] for f in told["frames"]] == [other] and not told["on_market"], told
        assert told["opens_unix_s"] > time.time()
        told = pv("frames", "add", f"daily {hour}:00-{(hour + 2) % 24}:00")
        assert len(told["frames"]) == 2 and told["on_market"], told
        refused(market, "n3", "overlap", "frames", "add", other)
        refused(market, "n3", "is no time zone", "frames", "zone", "Mars/Phobos")
        refused(market, "n3", "ends when it begins", "set", "frames", "mon 9:00-9:00")
        market.kill_daemon("n3")  # a daemon that is started again knows them
        market.until_up()
        assert len(pv("frames")["frames"]) == 2 and pv("frames")["zone"] == "UTC"
        assert len(pv("frames", "remove", "1")["frames"]) == 1
    finally:
        market.tool("pvdctl", "--node", "n3", "unset", "frames")
        market.tool("pvdctl", "--node", "n3", "unset", "zone")


@pytest.mark.parametrize("args, words", [
    (("set", "frames", "daily 8:00-12:00; mon 11:00-13:00"), ("frames", "overlap")),
    (("set", "frames", "sat 22:00-6:00; sun 5:00-7:00"), ("frames", "overlap")),
    (("set", "frames", "mon 9:00-9:00"), ("ends when it begins", "frames")),
    (("set", "frames", "someday 9:00-10:00"), ("frames", "'someday' is no day")),
    (("set", "frames", "25:00-26:00"), ("frames", "no time of day")),
    (("frames", "zone", "Mars/Phobos"), ("zone", "is no time zone")),
    (("frames", "zone", "../../etc/passwd"), ("zone",)),
    (("frames", "warning", "90d"), ("warning",)),
    (("price", "curve", "daily 8:00-9:00 = 2000000000"), ("price curve", "1000000000")),
    (("price", "curve", "daily 8:00-9:00 = -1"), ("price curve", "-1")),
    (("price", "curve", "daily 8:00-9:00 = 4; mon 8:30-8:45 = 5"), ("price curve", "overlap")),
    (("price", "curve", "daily 9:00-9:00 = 4"), ("price curve", "ends when it begins")),
    (("set", "price", "2000000000"), ("price", "1000000000")),
    (("set", "price", "auto", "--floor", "2000000000"), ("floor", "1000000000")),
    (("share", "here = 101%"), ("share", "more than 100%")),
    (("share", "here = -10% cpus"), ("share", "-10%", "no share")),
    (("share", "here = most of it"), ("share", "no share")),
    (("share", "here = 100000 cpus"), ("share", "100000")),
    (("share", "here = 60000 cpus"), ("share", "this machine has")),
    (("share", "here = 0%"), ("share", "nothing")),
    (("share", "mon 9:00-9:00 = 50%"), ("share", "ends when it begins")),
    (("set", "cpus", "100000"), ("cpus",)),
    (("set", "memory", "999999G"), ("memory",)),
    (("set", "speed", "99999999999"), ("speed",)),
], ids=lambda v: "_".join(v[:2]) if isinstance(v, tuple) else "")
def test_a_rule_that_cannot_be_is_refused_by_its_name_and_changes_nothing(market, args, words):
    def state():
        told = [market.ctl("pvdctl", "--node", "n2", verb)
                for verb in ("frames", "price", "share", "limits", "why")]
        return told, market.ctl("pvdctl", "--node", "n2", "status")["speed"]
    before = state()
    done = market.tool("pvdctl", "--node", "n2", *args, check=False)
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1 and not done.stdout, done
    assert all(word in done.stderr for word in words), done.stderr
    assert state() == before


@pytest.mark.parametrize("line, words", [
    ('frames = "daily 8:00-12:00; mon 11:00-13:00"', ("frames", "overlap")),
    ('frames = "mon 9:00-9:00"', ("frames", "ends when it begins")),
    ('frames_zone = "Mars/Phobos"', ("frames_zone", "is no time zone")),
    ('price_curve = "daily 8:00-9:00 = 4; mon 8:30-8:45 = 5"', ("price curve", "overlap")),
    ('share = "here = 120%"', ("share", "more than 100%")),
    ('share = "here = half"', ("share", "no share")),
    ('share = "here = -1 cpus"', ("share", "no number of CPUs")),
    ('price = "2000000000"', ("price", "1000000000")),
    ('price = "-1"', ("price",)),
    ('owner_cpu_percent = 101', ("owner_cpu_percent", "from 0 to 100")),
    ('budget_warn_permille = 1001', ("budget_warn_permille", "from 0 to 1000")),
    ('cpu_weight = 10001', ("cpu_weight", "from 1 to 10000")),
    ('cpus = 0', ("cpus",)),
    ('hidden = "private"', ("hidden", "private")),
    ('hidden = "/"', ("hidden", "/")),
], ids=lambda v: v.split()[0] if isinstance(v, str) else "")
def test_a_configuration_that_cannot_be_is_refused_by_its_key_and_the_old_one_holds(
        market, tmp_path, line, words):
    path, log = f"{market.run_dir}/n2/agentd.conf", f"{market.run_dir}/n2/log"
    before, told = read_text(path), market.ctl("pvdctl", "--node", "n2", "why")
    key = line.split(" = ")[0]
    text = line + "\n" + re.sub(rf"^{key} = .*\n", "", before, flags=re.M)
    (tmp_path / "agentd.conf").write_text(text)
    done = market.tool("agentd", "--check-config", "--config", tmp_path / "agentd.conf",
                       check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert all(word in done.stderr for word in words), done.stderr
    pid, seen = market.daemon("n2")["pid"], len(read_text(log))
    try:
        with open(path, "w") as f:
            f.write(text)
        os.kill(pid, signal.SIGHUP)
        until("it is refused", lambda: all(w in read_text(log)[seen:] for w in words))
        assert market.daemon("n2")["pid"] == pid
        assert market.ctl("pvdctl", "--node", "n2", "why") == told
    finally:
        with open(path, "w") as f:
            f.write(before)


def test_frames_that_an_older_version_took_hold_at_a_start_with_a_warning_and_not_by_a_reload(
        market):
    path, log = f"{market.run_dir}/n2/agentd.conf", f"{market.run_dir}/n2/log"
    before = read_text(path)
    two = ["daily 0:00-16:00", "daily 8:00-24:00"]
    text = f'frames = "{"; ".join(two)}"\n' + re.sub(r"^frames = .*\n", "", before, flags=re.M)
    seen = len(read_text(log))
    try:
        with open(path, "w") as f:
            f.write(text)
        os.kill(market.daemon("n2")["pid"], signal.SIGHUP)
        until("it is refused", lambda: "not read again" in read_text(log)[seen:])
        assert market.ctl("pvdctl", "--node", "n2", "frames")["frames"] == []
        seen = len(read_text(log))
        market.kill_daemon("n2")
        market.until_up()
        said = [line for line in read_text(log)[seen:].splitlines() if "overlap" in line]
        assert len(said) == 1 and "hold together" in said[0] and path in said[0], said
        told = market.ctl("pvdctl", "--node", "n2", "frames")
        assert [f["frame"] for f in told["frames"]] == two and told["on_market"], told
        refused(market, "n2", "overlap", "frames", "add", "mon 9:00-10:00")
    finally:
        with open(path, "w") as f:
            f.write(before)
        market.kill_daemon("n2")
        market.until_up()


def test_a_price_curve_is_what_the_market_is_told(market):
    reserve = lambda: next(p["reserve"] for p in market.ctl("marketctl", "list-providers")
                           if p["node"] == "n2")
    before = reserve()
    try:
        market.tool("pvdctl", "--node", "n2", "price", "curve", "daily 0:00-24:00 = 77")
        until("the market knows", lambda: reserve() == 77)
        told = market.ctl("pvdctl", "--node", "n2", "price")
        assert told["hours"] == [77] * 168 and told["price"] == 77, told
        assert "price curve" in market.tool("pvdctl", "--node", "n2", "why").stdout
    finally:
        market.tool("pvdctl", "--node", "n2", "unset", "curve")
    until("the market knows", lambda: reserve() == before)


def test_an_evicted_job_that_spreads_leaves_nothing_and_does_not_come_again(market):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", SPREADS)
    job.printed(1)
    at = market.until_runs(job.id)["where"]
    pids = set().union(*(p for _, _, p in market.capsules(job.id, at)))
    said = market.tool("pvdctl", "--node", at, "evict", job.id).stdout
    assert f"no guest is left on {at}" in said or "frozen to the disk" in said, said
    until("no process of it is there", lambda: not market.capsules(job.id, at))
    assert len(pids) >= 5
    until("all have ended", lambda: not any(map(alive, pids)))
    market.until_job(job.id, "runs elsewhere", lambda j: j["status"] == "run" and j["where"] != at)
    assert f"job {job.id}" in market.ctl("pvdctl", "--node", at, "limits")["bans"]
    until("what came back was refused", lambda: any(
        f"{at} does not take it: its owner takes no job {job.id}" in w for w in job.words))
    market.tool("pvdctl", "--node", at, "allow", "job", job.id)


def test_the_jobs_of_a_banned_program_leave_and_do_not_come(market):
    job = market.srun("-p", 50, "sleep", "1000")
    at = market.until_runs(job.id)["where"]
    try:
        told = market.ctl("pvdctl", "--node", at, "ban", "program", "sleep")
        assert "program sleep" in told["bans"], told
        market.until_job(job.id, "has left",
                         lambda j: j["status"] == "run" and j["where"] != at)
        others = [market.srun("-p", 60 + i, "sleep", "1000") for i in range(2)]
        for other in others:
            subprocess.run(["sleep", "0.1"])
            assert market.until_runs(other.id)["where"] != at
        assert "program sleep" in market.tool("pvdctl", "--node", at, "limits").stdout
    finally:
        market.tool("pvdctl", "--node", at, "allow", "program", "sleep")
    bad = market.tool("pvdctl", "--node", at, "allow", "program", "sleep", check=False)
    assert bad.returncode == 1 and "is not banned here" in bad.stderr, bad


def test_a_price_that_is_learned_is_never_below_the_floor_and_is_explained(market):
    reserve = lambda: next(p["reserve"] for p in market.ctl("marketctl", "list-providers")
                           if p["node"] == "n2")
    try:
        market.tool("pvdctl", "--node", "n2", "set", "price", "auto", "--floor", "33")
        until("the market knows", lambda: reserve() >= 33)
        until("the market's prices were looked at",
              lambda: "learned_hours" in market.ctl("pvdctl", "--node", "n2", "why"))
        told = market.ctl("pvdctl", "--node", "n2", "why")
        assert told["price"] >= 33 and told["floor"] == 33 and "learn_trouble" not in told, told
        market.kill_daemon("n2")  # a daemon that is started again knows it
        market.until_up()
        assert market.ctl("pvdctl", "--node", "n2", "why")["price_auto"]
        forecast = market.ctl("pvdctl", "--node", "n2", "forecast")
        assert len(forecast["at"]) == 5, forecast
        assert market.ctl("pvdctl", "--node", "n2", "earnings")["node"] == "n2"
    finally:
        market.tool("pvdctl", "--node", "n2", "unset", "price")
    assert not market.ctl("pvdctl", "--node", "n2", "why")["price_auto"]
