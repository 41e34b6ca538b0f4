# SPDX-License-Identifier: GPL-2.0-or-later
"""While the owner of a node uses it, guests are lowered, and then leave."""
import os
import re
import subprocess
import tempfile

import pytest

from codes import refused
from conftest import Market, Standing, mount_points, read_text, until
from test_checkpoints import configured
from test_owner import group_file, python, stands
from test_wake import reloaded

LEAVE = 'owner_return = "leave"\nowner_leave_s = 2\nowner_cpu_percent = 10\n'
HOG = ["/usr/bin/python3", "-c", "while True: pass"]


def status(market, node):
    return market.ctl("pvdctl", "--node", node, "status")


def test_guests_are_lowered_and_leave_while_the_owner_uses_the_node(market):
    job = market.srun("-p", 50, "sleep", "1000")
    at = market.until_runs(job.id)["where"]
    assert "presence" not in status(market, at)
    hog = subprocess.Popen(HOG)
    try:
        with configured(market, at, lambda text: LEAVE + text):
            market.until_up()
            until("its use is seen", lambda: status(market, at)["presence"]["here"])
            told = status(market, at)
            assert told["presence"]["guests"] in ("lowered", "leaving") and told["presence"]["why"]
            until("a second has been measured", lambda: status(market, at)["owner_permille"] > 0)
            assert status(market, at)["headroom_permille"] < 1000
            assert int(group_file(market, at, "", "cpu.weight", "cpu.shares")) < 103
            market.until_job(job.id, "has left",
                             lambda j: j["where"] != at and j["status"] == "run")
            told = status(market, at)
            assert told["cannot"] == f"its owner uses node {at}", told
            assert told["presence"]["guests"] in ("leaving", "evacuated"), told
            said = market.tool("pvdctl", "--node", at, "status").stdout
            assert "Your use:" in said and re.search("guests (leave|are gone)", said), said
            until("nothing of it is there any more", lambda: "empty_ms" in market.ctl(
                "pvdctl", "--node", at, "history", "1")["returns"][0])
    finally:
        hog.kill()
        hog.wait()
    assert status(market, at)["cannot"] == ""
    assert int(group_file(market, at, "", "cpu.weight", "cpu.shares")) in (100, 1024)
    back = market.srun("-p", 500, "sleep", "1000")
    assert market.until_runs(back.id)["where"]


@pytest.fixture
def busy_owner(market):
    """Called, his programs want every CPU many times over, in a group of their own as of a
    session."""
    def group(root):
        return f"{root}/{market.tag}-owner"
    begin = "import os, sys\nopen(sys.argv[1], 'w').write('0')\nwhile True: pass"
    root = next(r for r in mount_points(("cgroup", "cgroup2"))
                if any(os.path.exists(f"{r}/{market.tag}/{name}")
                       for name in ("cpu.weight", "cpu.shares")))
    os.mkdir(group(root))
    hogs = []
    try:
        for name, weight in (("cpu.weight", 400), ("cpu.shares", 4096)):
            if os.path.exists(f"{group(root)}/{name}"):
                with open(f"{group(root)}/{name}", "w") as file:
                    file.write(str(weight))
        yield lambda: hogs.extend(
            subprocess.Popen(["/usr/bin/python3", "-c", begin, group(root) + "/cgroup.procs"])
            for _ in range(4 * os.cpu_count()))
    finally:
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()
        os.rmdir(group(root))


def test_who_is_taken_away_from_a_busy_owner_gets_what_that_needs(market, busy_owner):
    """Idle, it would get a thousandth of the CPUs, and he would wait for his memory."""
    for node in ("n2", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")
    at = "n1"
    try:
        job = market.srun("-p", 50, "-m", 800, *python("a = bytearray(700 << 20)\n"
                                                       "print('held', flush=True)\n"
                                                       "import time\ntime.sleep(1000)"))
        job.printed(1)
        lower = 'owner_return = "lower"\nowner_cpu_percent = 10\n'
        with configured(market, at, lambda text: lower + text):
            market.until_up()
            busy_owner()
            until("guests are lowered",
                  lambda: status(market, at)["presence"]["guests"] == "lowered")
            weight = lambda: int(group_file(market, at, "", "cpu.weight", "cpu.shares"))
            until("it is in force", lambda: weight() < 10)
            market.tool("pvdctl", "--node", at, "market", "off")
            until("its memory is his", lambda: all(g["state"] == "frozen"
                                                   for g in status(market, at)["here"]))
            until("the others run on what he leaves", lambda: weight() < 10)
            assert job.process.poll() is None
    finally:
        for node in ("n1", "n2", "n3"):
            market.tool("pvdctl", "--node", node, "market", "on")


def test_a_lowered_guest_gives_a_cpu_back_that_the_owner_waits_for(market, busy_owner):
    job = market.srun("-p", 50, *python("while True: pass"))
    at = market.until_runs(job.id)["where"]
    lower = 'owner_return = "lower"\nowner_cpu_percent = 10\n'
    with configured(market, at, lambda text: lower + text):
        market.until_up()
        busy_owner()
        until("guests are lowered",
              lambda: status(market, at)["presence"]["guests"] == "lowered")
        assert "give_way_trouble" not in status(market, at)["presence"]
        until("the guest has given way", lambda: status(market, at)["presence"]["gave_way"] > 0)


# However late agentd is to look, he is not away meanwhile.
STOP = ('owner_return = "stop"\nowner_stop_s = 0\nowner_cpu_percent = 10\nowner_away_s = 600\n'
        'owner_wait_ms = 10000\n')
COUNT = """
import sys, time
with open(sys.argv[1], "w") as file:
    for i in range(10**9):
        print(i, flush=True)
        file.seek(0)
        file.write(str(i))
        file.flush()
        time.sleep(0.02)
"""


@pytest.fixture
def counted():
    """The program of COUNT writes its count into this file, so that a test knows it even while the
    program's output is still on its way."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="souk-count.") as file:
        yield file.name


def test_guests_stand_in_memory_while_the_owner_uses_the_node_and_pay_nothing(market, counted):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", COUNT, counted)
    at = market.until_runs(job.id)["where"]
    job.printed(3)

    def here():
        return next(g for g in status(market, at)["here"] if g["job"] == job.id)

    hog = subprocess.Popen(HOG)
    try:
        with configured(market, at, lambda text: STOP + text):
            market.until_up()
            until("guests are stopped",
                  lambda: status(market, at)["presence"]["guests"] == "stopped")
            until("the job stands", lambda: here()["state"] == "paused")
            assert here()["why_code"] == "owner_uses" and at in here()["why"]
            told = market.until_job(job.id, "is known to stand",
                                    lambda j: j.get("reason", {}).get("code") == "paused_by_owner")
            assert told["where"] == at and told["status"] == "run", told
            at_stop = int(read_text(counted))
            cost, run = market.job(job.id)["cost"], market.job(job.id)["runtime_s"]
            why = market.ctl("marketctl", "why", job.id)["reasons"]
            assert any((r["code"], r.get("node")) == ("paused_by_owner", at) for r in why), why
            # A new configuration leaves the job stopped, and so does a daemon that starts anew.
            assert reloaded(market, at, "owner_leave_s", "500") == "in_force"
            assert here()["state"] == "paused"
            market.kill_daemon(at)
            market.until_up()
            assert status(market, at)["presence"]["guests"] == "stopped"
            stands = market.job(job.id)["cost"]
            until("some time has passed", lambda: subprocess.run(["sleep", "0.5"]))
            assert int(read_text(counted)) == at_stop
            after = market.job(job.id)
            # The market may have been asked while the last moments were still on their way to it.
            assert after["cost"] == stands and 0 <= stands - cost < 1e-4, (cost, stands, after)
            assert after["runtime_s"] - run < 1, (run, after)
            # The owner changes his rule, and the job goes on. (Other programs on this machine count
            # as his use too.)
            assert reloaded(market, at, "owner_return", '"lower"') == "in_force"
            job.printed(job.lines() + 3)
            assert status(market, at)["presence"]["guests"] in ("none", "lowered")
            market.until_step(job.id, step="stopped", node=at, why_code="owner_uses")
    finally:
        hog.kill()
        hog.wait()


def test_a_share_that_cannot_be_written_is_logged_tried_again_and_then_in_force(market):
    """The control group's files are as on a full device, for that agentd."""
    job = market.srun("-p", 50, "sleep", "1000")
    at = market.until_runs(job.id)["where"]
    log = f"{market.run_dir}/{at}/log"
    controller = "cpu.weight" if group_file_path(market, at, "cpu.weight") else "cpu.shares"
    covered = [path for name in (controller, "cpu.idle")
               if (path := group_file_path(market, at, name))]

    hog = subprocess.Popen(HOG)
    try:
        for path in covered:
            subprocess.run(["mount", "--bind", "/dev/full", path], check=True)
        try:
            with configured(market, at, lambda text: 'owner_return = "lower"\n'
                            'owner_cpu_percent = 10\nowner_away_s = 600\n' + text):
                market.until_up()
                said = until("it is said", lambda: next(
                    (line for line in read_text(log).splitlines()
                     if "guests have another share than they should" in line), None))
                assert "No space left on device" in said, said
                assert status(market, at)["presence"]["guests"] == "lowered"
                uncover(covered)
                until("they have their share",
                      lambda: "guests have their share" in read_text(log))
                assert int(group_file(market, at, "", "cpu.weight", "cpu.shares")) < 103
        finally:
            uncover(covered)
    finally:
        hog.kill()
        hog.wait()


def uncover(paths):
    while paths:  # agentd may just be trying to write it
        subprocess.run(["umount", "-l", paths.pop()], check=True)


def group_file_path(market, node, name):
    return next((path for root in mount_points(("cgroup", "cgroup2"))
                 if os.path.exists(path := f"{root}/{market.tag}/{node}/{name}")), None)


def test_an_owner_pauses_all_guests_and_sees_how_his_returns_were(market, counted):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", COUNT, counted)
    at = market.until_runs(job.id)["where"]
    job.printed(3)

    def pvdctl(*words):
        return market.ctl("pvdctl", "--node", at, *words)

    assert pvdctl("pause")["paused"]
    until("the job stands", lambda: next(
        g for g in status(market, at)["here"] if g["job"] == job.id)["state"] == "paused")
    until("nothing more comes", lambda: stands(market, job, at))
    told = market.until_job(job.id, "is known to stand",
                            lambda j: j.get("reason", {}).get("code") == "paused_by_owner")
    assert told["reason"]["node"] == at, told
    market.kill_daemon(at)  # the word holds
    market.until_up()
    assert status(market, at)["paused"] and status(market, at)["cannot"]
    until("nothing more comes", lambda: stands(market, job, at))
    said = market.tool("pvdctl", "--node", at, "resume").stdout
    assert "Paused" not in said
    job.printed(job.lines() + 3)

    hog = subprocess.Popen(HOG)
    try:
        with configured(market, at, lambda text: 'free_cpu_ms = 60000\nfree_memory_s = 1\n' + STOP +
                        text):
            market.until_up()
            until("it stands", lambda: status(market, at)["presence"]["guests"] == "stopped")

            def newest():
                return pvdctl("history")["returns"][0]

            until("all stand", lambda: "stopped_ms" in newest() and newest()["missed"])
            back = newest()
            assert back["open"] and back["cause"] in ("load", "wait", "before"), back
            assert back["guests"] >= 1 or back["cause"] == "before", back
            assert 0 <= back["free_cpu_ms"] <= 60_000 and "free_memory_ms" not in back
            assert back["missed"] == [{"promise": "free_memory", "promised_ms": 1000,
                                       "why": f"{job.id}: it stands in memory"}], back
            promises = {p["promise"]: p for p in pvdctl("history", "5")["promises"]}
            assert promises["free_memory"]["missed"] >= 1
            assert promises["free_cpu"]["p99_ms"] >= promises["free_cpu"]["p50_ms"]
            said = market.tool("pvdctl", "--node", at, "history").stdout
            assert "p99.9" in said and "free_memory: " + job.id in said, said
            number = back["number"]
        assert pvdctl("history")["returns"][0]["number"] >= number  # it is kept
    finally:
        hog.kill()
        hog.wait()


def test_an_owner_whose_promise_a_guest_breaks_gets_a_refund_if_the_operator_says_so(market,
                                                                                     counted):
    path = f"{market.run_dir}/market/marketd.conf"
    before = read_text(path)

    def restart(text):
        with open(path, "w") as f:
            f.write(text)
        market.kill_daemon("market")
        market.until_up()

    restart("refund_permille = 500\n" + before)
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", COUNT, counted)
    at = market.until_runs(job.id)["where"]
    until("it has paid something", lambda: market.job(job.id)["cost"] > 0.0005)
    hog = subprocess.Popen(HOG)
    try:
        # The market hears only once what an owner missed, so he comes back when the market is there
        # to hear it.
        with configured(market, at, lambda text: 'free_memory_s = 1\n' +
                        STOP.replace('"stop"', '"nothing"') + text):
            market.until_up()
            assert reloaded(market, at, "owner_return", '"stop"') == "in_force"
            entry = until("there is a refund", lambda: next(
                (e for e in market.ctl("marketctl", "statement", at) if e["kind"] == "refund"),
                None))
            assert entry["job"] == job.id and entry["note"] == "free_memory was missed", entry
            assert 0 < entry["amount"] <= market.job(job.id)["cost"] / 2 + 1e-6, entry
            missed = market.ctl("pvdctl", "--node", at, "history")["returns"][0]["missed"]
            assert missed[0]["why"].startswith(job.id + ":"), missed
        market.tool("marketctl", "ledger", "verify")
        refunds = [e for e in market.ctl("marketctl", "statement", "root")
                   if e["kind"] == "refund"]
        assert len(refunds) == 1 and refunds[0]["amount"] == -entry["amount"], refunds
    finally:
        hog.kill()
        hog.wait()
        restart(before)


def test_the_return_of_an_owner_can_be_tried_on_one_host():
    """The load of other nodes' guests is no sign of him; souk owner is."""
    up = Standing()
    up.market = market = Market("--nodes", "2", "--owner-return", "leave")
    with up:
        jobs = [market.srun("-p", 50, "sh", "-c", "while :; do :; done") for _ in range(2)]
        places = {job.id: market.until_runs(job.id)["where"] for job in jobs}
        assert sorted(places.values()) == ["n1", "n2"]
        assert not any(status(market, node)["presence"]["here"] for node in ("n1", "n2"))
        job = next(id for id, where in places.items() if where == "n1")
        owner = subprocess.Popen(["souk", "owner", "n1", "--for", "120s"], env=market.env,
                                 stdout=subprocess.PIPE, text=True)
        try:
            assert owner.stdout.readline().startswith("the owner of n1 uses it for 2m")
            until("he is seen", lambda: status(market, "n1")["presence"]["here"])
            assert "owner-of-n1" in status(market, "n1")["presence"]["why"]
            market.until_job(job, "has left", lambda j: j["where"] != "n1" or
                             j["status"] == "suspend")
            assert not status(market, "n2")["presence"]["here"]
        finally:
            owner.kill()
            owner.wait()
        until("he is away", lambda: not status(market, "n1")["presence"]["here"])
        refused(market.tool("souk", "owner", "n7", check=False), "not_found")


def test_souk_owner_says_what_it_lacks(market):
    said = refused(market.tool("souk", "owner", "n1", check=False), "not_possible")
    assert "--owner-return" in said
