# SPDX-License-Identifier: GPL-2.0-or-later
"""clustersim: seeds that pass say so, one that fails is shown with the fewest faults that it fails
with."""
import json
import os
import re
import subprocess

BIN = os.environ.get("SOUK_BIN", "build/bin")


def clustersim(*arguments):
    return subprocess.run([f"{BIN}/clustersim", *arguments], capture_output=True, text=True,
                          timeout=300)


def test_seeds_that_pass_are_counted():
    done = clustersim("--seeds", "20")
    assert done.returncode == 0, done.stdout
    assert re.match(r"20 seeds, 0 failed; [\d.]+ simulated hours", done.stdout)
    assert done.stdout.count("\n") == 1


def test_its_speed_is_told_as_json():
    done = json.loads(clustersim("--seeds", "3", "--json", "--nodes", "5", "--jobs", "20").stdout)
    assert (done["seeds"] == 3 and done["failed"] == 0 and done["jobs"] == 20 and
            done["events"] > 1000)
    assert (abs(done["times_real_time"] - done["simulated_s"] / done["cpu_s"]) < 1e-6 *
            done["times_real_time"])


def test_the_real_market_gives_the_orders_if_it_is_asked_to():
    done = json.loads(clustersim("--booked", "--seeds", "20", "--json").stdout)
    assert done["seeds"] == 20 and done["failed"] == 0
    assert done["places_sold"] > 20 and done["places_begun"] > 0 and done["promises_kept"] > 0
    found = clustersim("--booked", "--seeds", "40", "--bug", "place_forgotten")
    assert found.returncode == 1
    assert re.search(r"^seed \d+: job \S+: was sold a place on n\d ", found.stdout, re.M)


def test_a_seed_that_fails_is_shown_with_few_of_its_faults_and_always_the_same():
    first, second = (clustersim("--seeds", "40", "--bug", "reuse_epoch").stdout for _ in range(2))
    shown = re.findall(r"^seed (\d+) fails, also with (\d+) of its (\d+) faults:$", first, re.M)
    assert shown and all(int(few) <= int(all_of_them) for _, few, all_of_them in shown)
    # One may need each of a few.
    assert any(int(few) < int(all_of_them) for _, few, all_of_them in shown)
    assert all(re.search(rf"^seed {seed}: job ", first, re.M) for seed, _, _ in shown)
    assert first.splitlines()[:-1] == second.splitlines()[:-1]  # the last line has the time


def test_one_seed_is_told_step_by_step():
    told = clustersim("--seed", "8", "--trace")
    assert told.returncode == 0, told.stdout[-2000:]
    *lines, last = told.stdout.splitlines()
    assert last == "seed 8: all is well"
    story = [line for line in lines if "JOB=n1.1" in line]
    # The same words at both ends, in order: what a home orders comes in at a guest, and goes on as
    # an effect there.
    steps = iter(story)
    for step in ("home input submit", "home output command.start", "guest input command.start",
                 "guest output do.create_capsule", "guest output event.running",
                 "home input event.running"):
        assert any(step in line for line in steps), f"no {step} in its place"
    assert re.search(r" us n\d home state \S+ JOB=n1\.1 EPOCH=\d+ NODE=n\d", told.stdout)
    assert clustersim("--seed", "8").stdout.startswith("1 seeds, 0 failed; ")
    assert told.stdout == clustersim("--seed", "8", "--trace").stdout


def test_wrong_usage_is_said_in_a_line():
    for arguments in (["--trace"], ["--seed", "1", "--seeds", "2"], ["--seeds", "0"],
                      ["--bug", "none_such"], ["--nodes", "1"], ["--fly"],
                      ["--booked", "--liars", "1"]):
        done = clustersim(*arguments)
        assert (done.returncode == 2 and done.stdout == "" and
                done.stderr.count("\n") == 1), done.stderr
        assert done.stderr.startswith("clustersim: ")
