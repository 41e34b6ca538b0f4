# SPDX-License-Identifier: GPL-2.0-or-later
"""The operator's programs (docs/filters.md) with two sites: each is used for a purpose, and what
becomes of jobs when one is silent, dies or speaks nonsense. The programs are real executables,
which run as another user."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import pytest

from conftest import LIMIT, read_text, until
from test_site_jobs import away, peers

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "contrib/filters"
KEYS = {"lab": ("submit_filter", "site_metric", "site_reroute"),
        "uni": ("arrival_filter", "user_map")}
NOBODY = 65534
GOOD = {
    "submit_filter": "print(json.dumps({'accept': True, 'token': 'class=deisa work_s=60'}))",
    "site_metric": "print(json.dumps({'metric': {o['site']: o['price'] for o in q['offers']}}))",
    "site_reroute": "print(json.dumps({'move': None, 'reason': 'good here'}))",
    "arrival_filter": "print(json.dumps({'accept': True}))",
    "user_map": "print(json.dumps({'user': 'nobody'}))",
}
BAD = {
    "silence": ("time.sleep(1000)", "no answer within 1500 ms"),
    "crash": ("os.kill(os.getpid(), 11)", "it was killed by signal 11"),
    "status": ("sys.exit('bad\\x1b[31m luck')", "it ended with status 1"),
    "no JSON": ("print('yes, please')", "its answer is no JSON"),
    "10 MB": ("print('{}' * 5000000)", "its answer is longer than 65536 bytes"),
    "wrong types": ("print('[1, 2]')", "its answer is no JSON object"),
    "another key": ("print('{\"priority\": 1}')", "its answer has the key 'priority'"),
    "children": ("\n".join(["for i in range(3):",
                            "    if os.fork() == 0:",
                            "        os.setsid()",
                            "        os.fork()",
                            "        time.sleep(1000)",
                            "print('left')"]), "its answer is no JSON"),
    "bomb": ("\n".join(["while True:", "    try:", "        os.fork()",
                        "    except OSError:", "        pass"]), "no answer within 1500 ms"),
}


class Programs:
    """Executables below a directory that others may read, and what they were asked."""
    def __init__(self, path):
        self.path = pathlib.Path(path)
        os.chmod(path, 0o755)
        self.seen = self.path / "seen"
        self.seen.mkdir()
        os.chmod(self.seen, 0o777)
        for key in GOOD:
            self.put(key)

    def put(self, key, body=None):
        text = (f"#!/usr/bin/python3\n# {self.path}/{key} runs\nimport json, os, sys, time\n"
                f"q = json.load(sys.stdin)\n"
                f"open({str(self.seen / key)!r}, 'a').write(json.dumps(q) + '\\n')\n"
                f"{body or GOOD[key]}\n")
        self.place(key, text)

    def place(self, key, text):
        new = self.path / (key + ".new")
        new.write_text(text)
        os.chmod(new, 0o755)
        os.rename(new, self.path / key)

    def asked(self, key):
        path = self.seen / key
        return [json.loads(line) for line in read_text(path).splitlines()] if path.exists() else []

    def left(self):
        """Processes of programs that are here."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            line = read_text(f"/proc/{pid}/cmdline")
            if str(self.path) in line and "souk-ask" not in line:
                found.append(pid)
        return found


def owners_say(site, text):
    for node in site.market.nodes():
        with open(f"{site.market.run_dir}/{node}/users.map", "w") as f:
            f.write(text)
        site.market.kill_daemon(node)


@pytest.fixture(scope="module")
def joined(fit):
    with peers(1) as (lab, uni), tempfile.TemporaryDirectory(dir="/tmp") as path:
        programs = Programs(path)
        owners_say(uni, "")
        for site in (lab, uni):
            conf = f"{site.market.run_dir}/market/marketd.conf"
            with open(conf, "a") as f:
                f.write("programs_limit_ms = 1500\n")
                for key in KEYS[site.name]:
                    f.write(f'{key} = "{programs.path}/{key}"\n')
            site.market.kill_daemon("market")
        lab.until_connected("uni")
        uni.until_connected("lab")
        yield lab, uni, programs


@pytest.fixture
def sites(joined):
    lab, uni, programs = joined
    for key in GOOD:
        programs.put(key)
    yield joined
    for site in (lab, uni):
        site.market.clear()
    assert until("nothing is left", lambda: not programs.left(), LIMIT)


def why(lab, id):
    return lab.market.tool("marketctl", "why", id).stdout


def until_why(lab, id, words):
    until(words, lambda: words in why(lab, id), LIMIT * 2)


def wish(lab, id, *words):
    lab.market.tool("srun", "-J", id, *words)


def waiting(lab, *words):
    """A job that finds no place at home."""
    lab.crowd()
    return lab.wait_at("--sites", "any", *words)


def test_a_job_passes_the_submit_filter_and_goes_with_its_token_to_a_local_account(sites):
    lab, uni, programs = sites
    lab.crowd()
    job = lab.begin("sh", "-c", "id -u; exec sleep 1000")
    id = job.id
    shown = away(lab, id)
    assert shown["filter"] == {"state": "passed", "token": "class=deisa work_s=60"}
    job.printed(1)
    assert bytes(job.out).split() == [str(NOBODY).encode()]
    submit = [q for q in programs.asked("submit_filter") if q["job"] == id]
    assert len(submit) == 1 and submit[0]["user"] == "root" and "sleep" in submit[0]["command"]
    arrival = [q for q in programs.asked("arrival_filter") if q["job"] == f"lab:{id}"]
    assert arrival and all(q["token"] == "class=deisa work_s=60" for q in arrival)
    assert "command" not in arrival[0] and arrival[0]["user"] == "root"
    assert programs.asked("user_map")[-1]["user"] == "root"
    guest = uni.guests()[f"lab:{id}"]
    assert guest["filter"] == {"state": "none", "token": "class=deisa work_s=60",
                               "account": "nobody"}
    # All of it outlives both markets.
    for site in (lab, uni):
        site.market.kill_daemon("market")
    lab.until_connected("uni")
    assert lab.market.job(id)["filter"] == shown["filter"]
    assert uni.guests()[f"lab:{id}"]["filter"] == guest["filter"]
    assert len([q for q in programs.asked("submit_filter") if q["job"] == id]) == 1
    lab.market.tool("marketctl", "cancel", id)
    job.wait()


def test_a_submit_filter_refuses_bars_and_holds_and_never_changes_the_users_terms(sites):
    lab, uni, programs = sites
    programs.put("submit_filter",
                 "mine = q['max_price'] < 50\n"
                 "print(json.dumps({'accept': not mine or q['cpus'] < 2, 'reason': 'too wide',"
                 "'bar': ['uni'], 'needs': 'node = n1', 'hold': mine}))")
    wide = lab.wait_at("-c", "2")
    until_why(lab, wide, "the submit filter refuses it: too wide")
    assert lab.market.job(wide)["status"] == "wait" and lab.market.job(wide)["cpus"] == 2
    lab.market.tool("srun", "-J", wide, "-p", "21")  # asked anew
    until("it is asked anew", lambda: len([
        q for q in programs.asked("submit_filter") if q["job"] == wide]) == 2, LIMIT)
    held = lab.wait_at("--sites", "any", "--needs", "node")
    lab.market.until_job(held, "is held", lambda j: j["hold"] == "frozen", LIMIT)
    assert lab.market.job(held)["needs"] == "node"
    lab.market.tool("marketctl", "release", held)
    lab.market.until_runs(held)
    barred = waiting(lab)
    lab.market.until_job(barred, "is held", lambda j: j["hold"] == "frozen", LIMIT)
    lab.market.tool("marketctl", "release", barred)
    time.sleep(4)  # it would have been asked about
    assert lab.market.job(barred)["status"] == "wait" and lab.offers(barred)["offers"] == []
    # An operator lets the first one pass.
    lab.market.tool("marketctl", "release", wide)
    until("it passes", lambda: lab.market.job(wide)["filter"]["state"] == "passed", LIMIT)


@pytest.mark.parametrize("how", BAD)
def test_without_an_answer_of_the_submit_filter_a_job_waits(sites, how):
    lab, uni, programs = sites
    body, said = BAD[how]
    programs.put("submit_filter", body)
    id = lab.wait_at()
    until_why(lab, id, "the submit filter gives no answer: " + said)
    until("nothing is left", lambda: not programs.left(), LIMIT)
    assert lab.market.job(id)["status"] == "wait"
    programs.put("submit_filter")
    lab.market.until_runs(id)


def offer_of_uni(lab, id, words):
    return lab.until_offered(id, words, lambda offers, by: words in by.get("uni", {}).get(
        "why", ""))


@pytest.mark.parametrize("key,how", [
    ("arrival_filter", "silence"), ("arrival_filter", "crash"), ("arrival_filter", "10 MB"),
    ("arrival_filter", "children"), ("user_map", "silence"), ("user_map", "status"),
    ("user_map", "another key")])
def test_without_an_answer_about_an_arrival_nobody_comes(sites, key, how):
    lab, uni, programs = sites
    programs.put(key, BAD[how][0])
    id = waiting(lab)
    program = {"arrival_filter": "arrival filter", "user_map": "user map"}[key]
    offer_of_uni(lab, id, f"the {program} gives no answer")
    assert lab.market.job(id)["status"] == "wait" and f"lab:{id}" not in uni.guests()
    programs.put(key)
    time.sleep(5)  # a failure is kept so long
    wish(lab, id, "-p", "21")
    away(lab, id)


def test_an_arrival_filter_refuses_or_names_a_least_price(sites):
    lab, uni, programs = sites
    programs.put("arrival_filter", "print(json.dumps({'accept': q['max_price'] > 20,"
                                   "'reason': 'more than 20', 'least': 12.5}))")
    id = waiting(lab)
    offer_of_uni(lab, id, "the arrival filter refuses it: more than 20")
    wish(lab, id, "-p", "22")
    away(lab, id)
    best = [o for o in lab.offers(id)["offers"] if o["site"] == "uni"]
    assert best and best[0]["price"] >= 12.5


def test_no_program_is_asked_about_a_job_that_the_terms_keep_away(sites):
    lab, uni, programs = sites
    uni.terms("lab", "--most-cpus", "4", "--users", "somebody")
    try:
        id = waiting(lab)
        offer_of_uni(lab, id, "not of this user")
        assert f"lab:{id}" not in [q["job"] for q in programs.asked("arrival_filter")]
    finally:
        uni.terms("lab", "--most-cpus", "4")
    wish(lab, id, "-p", "21")
    away(lab, id)
    assert f"lab:{id}" in [q["job"] for q in programs.asked("arrival_filter")]


def test_a_user_map_that_names_nobody_leaves_it_to_the_owners(sites):
    lab, uni, programs = sites
    programs.put("user_map", "print(json.dumps({'user': None}))")
    id = waiting(lab)
    until("its node refuses it", lambda: any("is nobody here" in read_text(
        f"{uni.market.run_dir}/{n}/log") for n in uni.market.nodes()), LIMIT * 2)
    until("it waits at home", lambda: lab.market.job(id)["status"] == "wait", LIMIT)
    programs.put("user_map", "print(json.dumps({'user': 'root'}))")
    log = f"{uni.market.run_dir}/market/log"
    other = lab.wait_at("--sites", "any", "-p", "30")
    until("root is refused", lambda: "its answer is root" in read_text(log), LIMIT * 2)
    assert f"lab:{other}" not in uni.guests()


def test_the_metric_chooses_or_keeps_a_job_at_home_and_without_it_the_market_does(sites):
    lab, uni, programs = sites
    programs.place("site_metric", (EXAMPLES / "metric-local").read_text())
    id = waiting(lab)
    until_why(lab, id, "site_metric gives none of them a number")
    assert lab.market.job(id)["status"] == "wait" and f"lab:{id}" not in uni.guests()
    programs.put("site_metric", BAD["wrong types"][0])
    wish(lab, id, "-p", "21")
    away(lab, id)
    assert "its answer is no JSON object" in read_text(f"{lab.market.run_dir}/market/log")


def limited_to(site, ms):
    """The site's programs have another time limit from now on."""
    conf = f"{site.market.run_dir}/market/marketd.conf"
    text = read_text(conf)
    with open(conf, "w") as f:
        f.write(re.sub(r"programs_limit_ms = \d+", f"programs_limit_ms = {ms}", text))
    site.market.kill_daemon("market")
    site.until_connected("uni")


def test_a_metric_that_hangs_keeps_no_job_at_home(sites):
    """Its limit is far above the time for which the peer keeps its place."""
    lab, uni, programs = sites
    limited_to(lab, 60_000)
    try:
        programs.place("site_metric", "#!/bin/sh\nsleep 1000\n")
        away(lab, waiting(lab))
    finally:
        limited_to(lab, 1500)


def test_a_program_that_is_gone_is_told_to_the_operator(sites):
    lab, uni, programs = sites
    warns = f"site_metric: {programs.path}/site_metric"
    assert warns not in lab.market.tool("marketctl", "status").stdout
    os.unlink(f"{programs.path}/site_metric")
    assert warns in lab.market.tool("marketctl", "status").stdout
    said = lab.market.doctor(lab.market.nodes()[0], "--json", "--agentd", "/nonexistent",
                             "--marketd", f"{lab.market.run_dir}/market/marketd.conf")
    found = {n["name"]: n for n in json.loads(said)}["warnings"]
    assert not found["met"] and warns in found["found"]


def test_a_program_says_whether_a_running_job_moves(sites):
    """It runs as the same user, so an owner's line says so, which goes before the user map."""
    lab, uni, programs = sites
    owners_say(uni, "lab/* = *\n")
    id = lab.wait_at("--sites", "own")
    lab.market.until_runs(id)
    wish(lab, id, "--sites", "any", "--prefer", "finish")
    until_why(lab, id, "site_reroute says stay: good here")
    asked = programs.asked("site_reroute")[-1]
    assert asked["here"]["site"] == "own" and asked["offers"][0]["site"] == "uni"
    assert asked["offers"][0]["pays"] is False and asked["offers"][0]["unit"] == "seconds"
    programs.put("site_reroute", BAD["crash"][0])  # then by the gain: there is none
    wish(lab, id, "-p", "21")
    until_why(lab, id, "no other site is worth a move: uni")
    programs.put("site_reroute", "print(json.dumps({'move': 'uni'}))")
    wish(lab, id, "-p", "22")
    away(lab, id)
    assert "moved for a gain: site_reroute says so" in why(lab, id)
    assert lab.market.job(id)["migrations"] == 1


def test_the_examples_answer_and_are_what_the_page_shows():
    page = (ROOT / "docs/filters.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    shown = {p.name: p.read_text() for p in EXAMPLES.iterdir()}
    assert sorted(blocks) == sorted(shown.values())
    job = {"job": "n1.1", "sites": "any", "runtime_s": 60.0, "left_lately": ["far"]}
    uni, far = ({"site": s, "price": p, "speed": 100, "starts_in_s": 0, "gain": g, "cost": 60,
                 "pays": g > 60} for s, p, g in (("uni", 10, 90), ("far", 60, 900)))

    def ask(name, **question):
        done = subprocess.run([str(EXAMPLES / name)], input=json.dumps(question), text=True,
                              capture_output=True, check=True)
        return json.loads(done.stdout)
    token = ask("submit", **job)["token"]
    assert ask("submit", **{**job, "runtime_s": 0}) == {"accept": True, "bar": "any"}
    assert ask("submit", **{**job, "sites": ""}) == {"accept": True}
    assert ask("arrival", token=token) == {"accept": True}
    assert ask("arrival", token="")["accept"] is False
    assert ask("users", site="lab", user="alice") == {"user": "deisa1"}
    assert ask("users", site="lab", user="root") == {"user": None}
    assert ask("metric", offers=[uni, far]) == {"metric": {"uni": 10, "far": None}}
    assert ask("metric-local", offers=[uni, far]) == {"metric": {}}
    assert ask("reroute", **job, offers=[uni, far])["move"] == "uni"
    assert ask("reroute", **job, offers=[{**uni, "pays": False}])["move"] is None
