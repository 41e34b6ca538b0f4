# SPDX-License-Identifier: GPL-2.0-or-later
"""Places that are sold ahead of their time, and programs inside a place that is held."""
import json
import re
import time
import xml.etree.ElementTree

from conftest import until


def booked(market, id):
    listed = json.loads(market.tool("marketctl", "--json", "reservations").stdout)
    return next((r for r in listed if r["id"] == id), None)


def submit(market, *words):
    return market.tool("srun", "--detach", *words).stdout.strip()


def test_a_place_is_sold_kept_from_the_second_and_given_back(wide, tmp_path):
    market = wide
    nodes = json.loads(market.tool("marketctl", "--json", "list-providers").stdout)
    others = [submit(market, "-p", "50", "sleep", "300")
              for _ in range(sum(n["cpus"] for n in nodes))]
    for id in others:
        market.until_runs(id)
    start = int(time.time()) + 12
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start))
    id = submit(market, "-p", "90", "-c", "2", "--start", at, "--for", "8s", "sh", "-c",
                f"date +%s.%N > {tmp_path}/began; sleep 60")
    sold = until("it is sold", lambda: (r := booked(market, id)) and r["state"] != "asked" and r)
    assert sold["start_unix_s"] == start and sold["end_unix_s"] == start + 8
    assert 50 <= sold["price"] <= 60
    market.until_reason(id, "reserved_from")
    plan = json.loads(market.tool("marketctl", "--json", "plan", "--until", "1h").stdout)
    mine = next(s for s in plan if s["job"] == id)
    assert (mine["kind"], mine["from_unix_s"], mine["node"]) == ("reserved", start, sold["node"])
    assert sum(s["kind"] == "runs" for s in plan) >= len(others) - 2
    picture = market.tool("marketctl", "plan", "--svg").stdout
    assert xml.etree.ElementTree.fromstring(picture).tag.endswith("svg")
    assert f"{id} " in picture
    job = market.until_runs(id, sold["node"])
    assert job["price"] == sold["price"]
    began = until("it has begun", lambda: (tmp_path / "began").exists() and
                  (tmp_path / "began").read_text())
    assert start <= float(began) < start + 3
    # After its time it competes with its bid like any other.
    until("its time is over", lambda: booked(market, id) is None)
    market.tool("marketctl", "cancel", id, *others)


def test_what_cannot_be_sold_says_so_and_what_is_wrong_is_refused(wide):
    market = wide
    id = submit(market, "-p", "2", "-c", "64", "--start", "now+1h", "--for", "2h", "true")
    market.until_job(id, "is not sold", lambda j: j["reason"]["code"] in (
        "place_not_sold", "too_many_cpus"))
    market.tool("marketctl", "cancel", id)
    for words, said in (
            (["--start", "9:00", "true"], "--start needs --for"),
            (["--for", "1h", "--early", "true"], "--early needs --start"),
            (["--start", "2020-01-01", "--for", "1h", "true"], "is over"),
            (["--in", "n1.1", "--for", "1h", "true"], "--in runs in a place that is there"),
            (["--in", "seven", "true"], "--in"),
            (["--allocate", "true"], "--allocate runs no program"),
            (["--for", "1h", "-s", "patient", "true"], "fixed")):
        done = market.tool("srun", "-p", "9", "--detach", *words, check=False)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, words


def test_programs_run_in_a_place_that_is_held(wide):
    market = wide
    place = submit(market, "-p", "90", "-c", "2", "-m", "400M", "--allocate", "--for",
                   "1h")
    market.until_runs(place)
    assert booked(market, place)["state"] == "held"
    said = market.tool("srun", "--in", place, "-m", "64M", "sh", "-c", "echo inside").stdout
    assert said == "inside\n"
    steps = [submit(market, "--in", place, "-m", "64M", "sleep", "300") for _ in range(3)]
    for id in steps[:2]:
        assert market.until_runs(id)["price"] == 0
    market.until_reason(steps[2], "inside_full")
    market.tool("marketctl", "cancel", steps[0])
    market.until_runs(steps[2])
    market.tool("marketctl", "cancel", place)
    market.until_reason(steps[1], "inside_gone")
    market.tool("marketctl", "cancel", *steps[1:])
    text = market.tool("marketctl", "plan", "--if", "n1 off at 23:59").stdout
    assert re.search(r"^Node +From", text)


def test_a_place_that_is_given_runs_programs_of_that_user(wide):
    market, other = wide, {"user": 65534, "group": 65534, "extra_groups": []}
    place = submit(market, "-p", "90", "-c", "2", "-m", "400M", "--allocate", "--for", "1h")
    market.until_runs(place)
    id = market.tool("srun", "--detach", "--in", place, "-m", "64M", "sleep", "300",
                     **other).stdout.strip()
    market.until_reason(id, "inside_gone")
    refused = market.tool("marketctl", "give", place, "65534", check=False, **other)
    assert refused.returncode == 1 and "belongs to another user" in refused.stderr
    refused = market.tool("marketctl", "give", id, "1234", check=False)
    assert refused.returncode == 1 and "only a place without one can be given" in refused.stderr
    assert f"srun --in {place}" in market.tool("marketctl", "give", place, "65534").stdout
    assert market.until_runs(id)["price"] == 0
    assert booked(market, place)["given"] in ("nobody", "65534")
    market.tool("marketctl", "give", place, "-")
    market.until_reason(id, "inside_gone")
    assert "given" not in booked(market, place)
    market.tool("marketctl", "cancel", id, place)
