# SPDX-License-Identifier: GPL-2.0-or-later
"""What a stock machine has and a container or a sandbox may lack: CAP_SYS_RESOURCE, the controllers of cgroup v2,
soft-dirty tracking, systemd as PID 1. Run inside a machine of its own by scripts/vm/run, where everything is in /souk.

Each line that begins with `vm: ` is shown outside. Every test runs, whatever became of those before it; exit 1 if one
failed. No test measures speed: the machine is emulated.
"""
import json
import os
import re
import subprocess
import sys
import time
import traceback

os.environ.update(SOUK_BIN="/souk/bin", SOUK_TEST_LIMIT="90", PATH="/souk/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root",
                  PYTHONDONTWRITEBYTECODE="1")
sys.path.insert(0, "/souk/tests/cluster")
import programs  # noqa: E402
from conftest import BIN, Market, read_text, until  # noqa: E402

ALICE = 4321  # a user of the root image
V2 = "/sys/fs/cgroup"


def say(text):
    print(f"vm: {text}", flush=True)


def need(truth, what):
    """An assertion that says what was seen."""
    if not truth:
        raise AssertionError(what)


def load(steps, memory=8, seed=1):
    return [f"{BIN}/testload", "--steps", str(steps), "--print-every", "50", "--digest", "--memory", str(memory),
            "--seed", str(seed)]


def move(market, id, there):
    """True when it runs there; False if it has ended."""
    done = market.tool("marketctl", "--hold", "move", id, there, check=False)
    if done.returncode != 0:
        need(market.job(id).get("status") == "finish", f"move {id} {there}: {done.stderr}")
        return False
    return market.until_job(id, f"runs on {there}", lambda j: j["status"] == "finish" or
                            j["status"] == "run" and j["where"] == there and "going_to" not in j)["status"] == "run"


def moved(market, job, times):
    """Back and forth between the first two nodes; how often before it ended."""
    where = market.until_runs(job.id)["where"]
    for done in range(times):
        where = "n2" if where == "n1" else "n1"
        if not move(market, job.id, where):
            return done
    return times


def test_doctor_finds_all_that_a_stock_kernel_has():
    done = subprocess.run([f"{BIN}/souk", "doctor", "--json"], capture_output=True, text=True, timeout=120)
    needs = {n["name"]: n for n in json.loads(done.stdout)}
    need(done.returncode == 0, f"souk doctor: {done.returncode} {done.stdout} {done.stderr}")
    for name, found in (("CAP_SYS_RESOURCE", "effective"), ("cpu controller", "v2"), ("memory controller", "v2"),
                        ("BTF", "programs load"), ("soft-dirty", "tracked"), ("CRIU", "dumps and restores")):
        need(needs[name]["met"] and found in needs[name]["found"], f"{needs[name]}")
    return f"CRIU {needs['CRIU']['found'].split()[0]}, soft-dirty {needs['soft-dirty']['found']}"


def test_jobs_that_move_back_and_forth_end_as_unmoved_ones(market):
    """A small one, and big ones by each of the ways that srun --move allows."""
    told = []
    for form, memory in (("auto", 2), ("safe", 48), ("fast", 48)):
        command = load(700, memory)
        alone = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        job = market.srun("-p", 50, "--move", form, *command)
        times = moved(market, job, 3)
        need(job.wait() == 0, f"{form}: ended with {job.process.returncode}: {job.told}")
        need(times >= 2, f"{form}: it ended after {times} moves already")
        last = market.job(job.id)
        need(last["failed_moves"] == 0 and last["migrations"] >= times, f"{form}: {last}")
        need(bytes(job.out) == alone.communicate(timeout=90)[0] and job.out, f"{form}: not an unmoved run's: {job.out[-200:]!r}")
        told.append(f"{form} {memory} MB {times} times")
    return ", ".join(told)


def test_a_job_of_a_plain_user_moves_and_is_the_users_all_along(market):
    script = ('import os,sys,time\n'
              'os.close(os.open("/home/alice/made", os.O_CREAT | os.O_WRONLY))\n'
              'for i in range(100000):\n'
              '    print(i, os.getresuid(), os.getresgid(), flush=True)\n'
              '    if os.path.exists("/home/alice/stop"): break\n'
              '    time.sleep(0.05)\n'
              'sys.exit(9)\n')
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", script, env={**market.env, "HOME": "/home/alice"}, user=ALICE,
                      group=ALICE, extra_groups=[], cwd="/home/alice")
    job.printed(5)
    need(moved(market, job, 4) == 4, "it ended")
    pids = set().union(*[p for _, _, p in market.capsules(job.id)])
    job.printed(job.lines() + 5)
    owners = {m[1] for p in pids if "python3" in read_text(f"/proc/{p}/cmdline")
              and (m := re.search(r"^Uid:\s+(\d+)\s", read_text(f"/proc/{p}/status"), re.M))}
    need(owners == {str(ALICE)}, f"its processes belong to {owners}")
    with open("/home/alice/stop", "w"):
        pass
    need(job.wait() == 9, f"ended with {job.process.returncode}: {job.told}")
    lines = bytes(job.out).decode().splitlines()
    ids = f"({ALICE}, {ALICE}, {ALICE})"
    need(lines == [f"{i} {ids} {ids}" for i in range(len(lines))], f"it printed {lines[-3:]}")
    need(os.stat("/home/alice/made").st_uid == ALICE, "its file is another's")
    return f"4 moves, {len(lines)} lines"


def test_a_job_of_a_plain_user_is_no_other_users_to_end(market):
    job = market.srun("-p", 50, "sleep", "1000")
    market.until_runs(job.id)
    done = market.tool("marketctl", "cancel", job.id, check=False, user=ALICE, group=ALICE, extra_groups=[])
    need(done.returncode == 1 and market.job(job.id)["status"] == "run", f"{done}")
    market.tool("marketctl", "cancel", job.id)
    need(job.wait() == 255, f"{job.process.returncode}")


def test_the_cpu_share_of_a_node_acts(market):
    """n1 and n2 have speeds 300 and 100: jobs of both on one CPU get time in this ratio."""
    jobs = [market.srun("-p", p, "taskset", "-c", "0", *load(1_000_000, memory=1)) for p in (60, 50)]
    where = {market.until_runs(j.id)["where"] for j in jobs}
    need(where == {"n1", "n2"}, f"they run on {where}")

    def used(node):
        return int(re.search(r"usage_usec (\d+)", read_text(f"{V2}/{market.tag}/{node}/cpu.stat"))[1])
    need([read_text(f"{V2}/{market.tag}/{n}/cpu.weight").strip() for n in ("n1", "n2")] == ["300", "100"], "weights")
    before = used("n1"), used("n2")
    until("four seconds of CPU", lambda: used("n1") - before[0] + used("n2") - before[1] > 4e6, pause=0.2)
    first, second = used("n1") - before[0], used("n2") - before[1]
    need(2 <= first / second <= 4.5, f"300 to 100 gave {first / 1e6:.2f} s to {second / 1e6:.2f} s")
    for j in jobs:
        market.tool("marketctl", "cancel", j.id)
    for j in jobs:
        j.wait()
    return f"300:100 gave {first / second:.1f}:1"


# 24 MB of which few change; TERM: the digest of all, which its end must tell.
TOUCHER = """
import hashlib, os, signal, sys, time
memory, n, end = bytearray(hashlib.sha256(b"souk").digest() * (24 << 15)), 0, []
signal.signal(signal.SIGTERM, lambda *_: end.append(1))
os.write(1, b"ready\\n")
while not end:
    memory[n % 256 * 4096] = n // 256 % 256
    n += 1
    time.sleep(0.005)
want = bytearray(hashlib.sha256(b"souk").digest() * (24 << 15))
for i in range(max(0, n - 256), n): want[i % 256 * 4096] = i // 256 % 256
os.write(1, b"whole\\n" if memory == want else b"damaged\\n")
"""


def test_memory_can_be_sent_ahead():
    """CRIU's pre-dump: the second round is a fraction of the first, and the restored process whole."""
    base = "/run/ahead"
    for name in ("1", "2", "3"):
        os.makedirs(f"{base}/{name}")
    out = os.open(f"{base}/out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open("/dev/null", os.O_RDONLY)
    process = subprocess.Popen(["/usr/bin/python3", "-c", TOUCHER], stdin=null, stdout=out, stderr=out, start_new_session=True,
                               cwd="/")
    until("it is ready", lambda: read_text(f"{base}/out") == "ready\n")

    def criu(verb, *args):
        done = subprocess.run(["/opt/souk/criu/criu", verb, "-o", "log", "--manage-cgroups=ignore", *args], capture_output=True,
                              text=True, timeout=90)
        where = args[args.index("-D") + 1]
        errors = [line for line in read_text(f"{where}/log").splitlines() if "Error" in line][:5]
        need(done.returncode == 0, f"criu {verb}: {done.stderr[-300:]} {errors}")

    def pages(name):
        return sum(os.stat(f"{base}/{name}/{f}").st_size for f in os.listdir(f"{base}/{name}") if f.startswith("pages-"))
    tree = ["-t", str(process.pid), "--track-mem"]
    criu("pre-dump", *tree, "-D", f"{base}/1")
    time.sleep(0.2)
    criu("pre-dump", *tree, "-D", f"{base}/2", "--prev-images-dir", "../1")
    criu("dump", *tree, "-D", f"{base}/3", "--prev-images-dir", "../2")
    process.wait(30)
    pid_file = f"{base}/pid"
    criu("restore", "-d", "-D", f"{base}/3", "--pidfile", pid_file)
    os.kill(int(read_text(pid_file)), 15)
    until("its end", lambda: read_text(f"{base}/out") in ("ready\nwhole\n", "ready\ndamaged\n"))
    need(read_text(f"{base}/out") == "ready\nwhole\n", "its memory is damaged")
    sizes = [pages(n) for n in ("1", "2", "3")]
    need(sizes[0] > 24 << 20 and sizes[1] < sizes[0] / 4 and sizes[2] < sizes[0] / 4, f"rounds of {sizes} bytes")
    return "rounds of " + ", ".join(f"{s / 1e6:.1f}" for s in sizes) + " MB"


def test_a_market_under_systemds_units_outlives_kills_and_restarts():
    """marketd and two agentd of contrib/systemd: ready when they say so, started again when killed; their job goes on."""
    os.makedirs("/etc/souk")
    agent = 'market = "127.0.0.1:7070"\ncpus = 1\nmemory_mb = 200\n'
    for name, text in (
            ("marketd", 'listen = "127.0.0.1:7070"\n'),
            ("agentd", f'node = "left"\nlisten = "127.0.0.1:7071"\ncgroup = "souk/left"\n{agent}'),
            ("right", f'node = "right"\nlisten = "127.0.0.1:7072"\ncgroup = "souk/right"\nsocket = "/run/souk/right.sock"\n'
                      f'state = "/var/lib/souk/right"\n{agent}')):
        with open(f"/etc/souk/{name}.conf", "w") as f:
            f.write(text)
    units = ["souk-marketd", "souk-agentd", "souk-right"]
    for unit in units:
        text = read_text(f"/souk/systemd/{unit.replace('right', 'agentd')}.service").replace("/usr/local/bin", BIN)
        with open(f"/etc/systemd/system/{unit}.service", "w") as f:
            f.write(text.replace("agentd.conf", "right.conf") if unit == "souk-right" else text)

    def systemctl(*words):
        done = subprocess.run(["timeout", "60", "systemctl", *words], capture_output=True, text=True)
        if done.returncode != 0:
            said = subprocess.run(["systemctl", "--no-pager", "status", *units], capture_output=True, text=True)
            raise AssertionError(f"systemctl {words}: {done.returncode} {done.stderr}{said.stdout}")
        return done.stdout

    def shown(unit, key):
        return systemctl("show", "--value", "-p", key, unit).strip()
    systemctl("mask", "--runtime", "--now", "systemd-networkd-wait-online.service")  # this machine has loopback alone
    systemctl("daemon-reload")
    systemctl("start", *units)
    market = Market()
    market.env.pop("SOUK_RUN")
    until("both are connected", lambda: [p["connected"] for p in market.providers()] == [True, True])
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    try:
        where = market.until_runs(job.id)["where"]
        for unit in units:
            old = shown(unit, "MainPID")
            os.kill(int(old), 9)
            until(f"{unit} is started again", lambda: shown(unit, "ActiveState") == "active" and
                  shown(unit, "MainPID") not in ("0", old), pause=0.2)
        until("both are connected again", lambda: market.tool("marketctl", "list-providers", check=False).returncode == 0 and
              [p["connected"] for p in market.providers()] == [True, True])
        other = "right" if where == "left" else "left"
        need(move(market, job.id, other), "it ended")
        systemctl("restart", *units)
        until("it runs as before", lambda: market.job(job.id).get("status") == "run")
        job.printed(job.lines() + 5)
        job.process.stdin.close()
        need(job.wait() == 7, f"ended with {job.process.returncode}: {job.told}")
        programs.check_chain(job.out)
        systemctl("stop", *units)
        need([shown(u, "Result") for u in units] == ["success"] * 3, "a unit failed when it was stopped")
    finally:
        job.end()
    return f"{job.lines()} lines"


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
        say(f"Linux {os.uname().release}, PID 1 is {f.read().strip()}, up for {read_text('/proc/uptime').split()[0]} s")
    ok = [run(test_doctor_finds_all_that_a_stock_kernel_has), run(test_memory_can_be_sent_ahead)]
    market = Market("--nodes", "3", "--speeds", "300,100,50")
    try:
        market.up()
        for test in (test_jobs_that_move_back_and_forth_end_as_unmoved_ones,
                     test_a_job_of_a_plain_user_moves_and_is_the_users_all_along,
                     test_a_job_of_a_plain_user_is_no_other_users_to_end,
                     test_the_cpu_share_of_a_node_acts):
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
    say(f"{'ok      souk down leaves nothing behind' if not left else f'FAILED  souk down left {left}'}")
    ok.append(run(test_a_market_under_systemds_units_outlives_kills_and_restarts))
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
