# SPDX-License-Identifier: GPL-2.0-or-later
"""These tests need things that a stock machine has, and that a container or a sandbox may lack:
CAP_SYS_RESOURCE, the controllers of cgroup v2, soft-dirty tracking, systemd as PID 1.
scripts/vm/run runs them inside a machine of their own, where everything is in /souk.

Each line that begins with `vm: ` is shown outside. Every test runs, whatever became of those before
it; exit 1 if one failed. No test measures speed: the machine is emulated.
"""
import json
import os
import re
import subprocess
import sys
import time
import traceback

import doctored_images as doctored
import give_way
import plain_users as users
import sent_ahead as ahead
import shared_memory as shared
import systemd_units as units
from inside import BIN, V2, Market, load, move, moved, need, programs, read_text, say, until


def test_doctor_finds_all_that_a_stock_kernel_has():
    done = subprocess.run([f"{BIN}/souk", "doctor", "--json"], capture_output=True, text=True,
                          timeout=120)
    needs = {n["name"]: n for n in json.loads(done.stdout)}
    need(done.returncode == 0, f"souk doctor: {done.returncode} {done.stdout} {done.stderr}")
    for name, found in (("CAP_SYS_RESOURCE", "effective"), ("cpu controller", "v2"),
                        ("memory controller", "v2"), ("BTF", "programs load"),
                        ("soft-dirty", "tracked"), ("CRIU", "dumps and restores")):
        need(needs[name]["met"] and found in needs[name]["found"], f"{needs[name]}")
    return f"CRIU {needs['CRIU']['found'].split()[0]}, soft-dirty {needs['soft-dirty']['found']}"


def test_jobs_that_move_back_and_forth_end_as_unmoved_ones(market):
    """A small one, and big ones by each of the ways that srun --move allows. The job waits before
    its last step until it was moved as often as it is to be."""
    told, times = [], 3
    for form, memory, steps in (("auto", 2, 700), ("safe", 48, 2000), ("fast", 48, 700)):
        command = load(steps, memory)
        alone = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        done = f"/tmp/moved-{form}"
        job = market.srun("-p", 50, "--move", form, *command, "--until", done)
        need(moved(market, job, times) == times, f"{form}: it ended before it was moved")
        with open(done, "w"):
            pass
        need(job.wait() == 0, f"{form}: ended with {job.process.returncode}: {job.told}")
        last = market.job(job.id)
        need(last["failed_moves"] == 0 and last["migrations"] >= times, f"{form}: {last}")
        need(bytes(job.out) == alone.communicate(timeout=90)[0] and job.out,
             f"{form}: not an unmoved run's: {job.out[-200:]!r}")
        told.append(f"{form} {memory} MB {times} times")
    return ", ".join(told)


def test_a_wall_clock_that_is_set_charges_nothing_and_stops_nothing(market):
    """Back and forth by hours and weeks, under a job that runs, moves, is written down and
    frozen."""
    def set_clock(seconds):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    began, wall = time.monotonic(), time.time()
    job = market.srun("-p", 50, "--checkpoint-every", "2s", *programs.chain_job(),
                      stdin=subprocess.PIPE)
    where = market.until_runs(job.id)["where"]
    try:
        for hours in (1, -24, 24 * 40, -24 * 30):
            set_clock(hours * 3600)
            job.printed(job.lines() + 3)
            where = "n2" if where == "n1" else "n1"
            need(move(market, job.id, where), "it ended")
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        set_clock(-24 * 3600)
        market.tool("marketctl", "release", job.id)
        market.until_runs(job.id)
        job.printed(job.lines() + 3)
    finally:
        time.clock_settime(time.CLOCK_REALTIME, wall + time.monotonic() - began)
    job.process.stdin.close()
    need(job.wait() == 7, f"ended with {job.process.returncode}: {job.told}")
    programs.check_chain(job.out)
    last = market.until_job(job.id, "is settled", lambda j: j["status"] == "finish")
    took = time.monotonic() - began
    need(0 < last["runtime_s"] <= took and 0 < last["market_runtime_s"] <= took,
         f"in {took} s: {last}")
    need(market.tool("marketctl", "ledger", "verify").returncode == 0, "the ledger")
    return f"5 times, {last['runtime_s']:.0f} s charged of {took:.0f}"


def test_the_cpu_share_of_a_node_acts(market):
    """n1 and n2 have speeds 300 and 100: jobs of both on one CPU get time in this ratio."""
    jobs = [market.srun("-p", p, "taskset", "-c", "0", *load(1_000_000, memory=1))
            for p in (60, 50)]
    # The first to start may stand on n2 until the other is placed too.
    until("one runs on n1 and one on n2",
          lambda: {market.until_runs(j.id)["where"] for j in jobs} == {"n1", "n2"})

    def used(node):
        return int(
            re.search(r"usage_usec (\d+)", read_text(f"{V2}/{market.tag}/{node}/cpu.stat"))[1])

    need([read_text(f"{V2}/{market.tag}/{n}/cpu.weight").strip() for n in ("n1", "n2")] ==
         ["300", "100"], "weights")
    before = used("n1"), used("n2")
    until("four seconds of CPU", lambda: used("n1") - before[0] + used("n2") - before[1] > 4e6,
          pause=0.2)
    first, second = used("n1") - before[0], used("n2") - before[1]
    need(2 <= first / second <= 4.5, f"300 to 100 gave {first / 1e6:.2f} s to {second / 1e6:.2f} s")
    for j in jobs:
        market.tool("marketctl", "cancel", j.id)
    for j in jobs:
        j.wait()
    return f"300:100 gave {first / second:.1f}:1"


def run(test, *args):
    name, began = test.__name__.removeprefix("test_").replace("_", " "), time.monotonic()
    try:
        told = test(*args)
        say(f"ok      {name}{f' ({told})' if told else ''}, {time.monotonic() - began:.1f} s")
        return True
    except Exception:  # every test runs; said with its trace
        say(f"FAILED  {name}, {time.monotonic() - began:.1f} s")
        for line in traceback.format_exc().splitlines()[-12:]:
            say(f"        {line}")
        return False


def main():
    with open("/proc/1/comm") as f:
        say(f"Linux {os.uname().release}, PID 1 is {f.read().strip()}, up for "
            f"{read_text('/proc/uptime').split()[0]} s")
    ok = [run(test_doctor_finds_all_that_a_stock_kernel_has),
          run(ahead.test_marks_of_written_pages_are_understood)]
    market = Market("--nodes", "3", "--speeds", "300,100,50", "--check-ahead")
    try:
        market.up()
        for test in (ahead.test_jobs_move_with_their_memory_sent_ahead,
                     ahead.test_a_daemon_that_dies_while_memory_goes_ahead_costs_a_move_not_the_job,
                     test_jobs_that_move_back_and_forth_end_as_unmoved_ones,
                     users.test_a_job_of_a_plain_user_moves_and_is_the_users_all_along,
                     users.test_a_plain_user_who_swaps_a_directory_gets_no_file_of_roots,
                     users.test_what_a_restore_makes_for_a_plain_user_is_the_users,
                     shared.test_memory_that_processes_of_a_plain_user_share_stays_shared,
                     shared.test_memory_that_the_kernel_has_merged_stays_merged,
                     users.test_a_job_of_a_plain_user_is_no_other_users_to_end,
                     doctored.test_an_image_that_a_provider_only_writes_anew_goes_on_elsewhere,
                     doctored.test_no_file_of_roots_is_opened_for_a_job_by_an_image_of_another_node,
                     doctored.test_no_packet_socket_comes_out_of_an_image_of_another_node,
                     doctored.test_an_image_of_another_node_sets_nothing_of_a_nodes_network,
                     doctored.test_no_image_of_another_node_frees_a_job_of_the_limit_of_its_calls,
                     doctored.test_no_image_of_another_node_asks_for_a_trial,
                     doctored.test_images_of_one_user_take_their_share_of_a_disk,
                     test_a_wall_clock_that_is_set_charges_nothing_and_stops_nothing,
                     test_the_cpu_share_of_a_node_acts,
                     give_way.test_a_lowered_guest_gives_the_cpu_back):
            ok.append(run(test, market))
            if not ok[-1]:
                for path, text in market.logs():
                    print(f"{path}:\n{text}", flush=True)
            market.clear()
    except Exception:
        ok.append(False)
        for line in traceback.format_exc().splitlines()[-12:]:
            say(f"        {line}")
        for path, text in market.logs():
            print(f"{path}:\n{text}", flush=True)
    left = market.down()
    ok.append(not left)
    say(f"FAILED  souk down left {left}" if left else "ok      souk down leaves nothing behind")
    ok.append(run(units.test_a_market_under_systemds_units_outlives_kills_and_restarts))
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
