# SPDX-License-Identifier: GPL-2.0-or-later
"""The units of contrib/systemd."""
import os
import subprocess

from inside import BIN, Market, move, need, programs, read_text, until


def test_a_market_under_systemds_units_outlives_kills_and_restarts():
    """marketd and two agentd of contrib/systemd: ready when they say so, started again when killed;
    their job goes on."""
    os.makedirs("/etc/souk")
    agent = ('market = "127.0.0.1:7070"\ncpus = 1\nmemory_mb = 200\nspeed = 100\n'
             'insecure = true\n')
    for name, text in (
            ("marketd", 'listen = "127.0.0.1:7070"\ninsecure = true\n'),
            ("agentd", f'node = "left"\nlisten = "127.0.0.1:7071"\ncgroup = "souk/left"\n{agent}'),
            ("right", f'node = "right"\nlisten = "127.0.0.1:7072"\ncgroup = "souk/right"\n'
             f'socket = "/run/souk/right.sock"\n'
             f'state = "/var/lib/souk/right"\n{agent}')):
        with open(f"/etc/souk/{name}.conf", "w") as f:
            f.write(text)
    units = ["souk-marketd", "souk-agentd", "souk-right"]
    for unit in units:
        text = read_text(f"/souk/systemd/{unit.replace('right', 'agentd')}.service").replace(
            "/usr/local/sbin", BIN)
        with open(f"/etc/systemd/system/{unit}.service", "w") as f:
            f.write(text.replace("agentd.conf", "right.conf") if unit == "souk-right" else text)

    def systemctl(*words):
        done = subprocess.run(["timeout", "60", "systemctl", *words], capture_output=True,
                              text=True)
        if done.returncode != 0:
            said = subprocess.run(["systemctl", "--no-pager", "status", *units],
                                  capture_output=True, text=True)
            raise AssertionError(f"systemctl {words}: {done.returncode} {done.stderr}{said.stdout}")
        return done.stdout

    def shown(unit, key):
        return systemctl("show", "--value", "-p", key, unit).strip()

    for words in (["systemd-sysusers", "/souk/systemd/sysusers.conf"],
                  ["systemd-tmpfiles", "--create", "/souk/systemd/tmpfiles.conf"]):
        subprocess.run(words, check=True, timeout=60)
    # This machine has loopback alone.
    systemctl("mask", "--runtime", "--now", "systemd-networkd-wait-online.service")
    systemctl("daemon-reload")
    systemctl("start", *units)
    market = Market()
    market.env.pop("SOUK_RUN")
    until("both are connected",
          lambda: [p["connected"] for p in market.providers()] == [True, True])
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    try:
        where = market.until_runs(job.id)["where"]
        for unit in units:
            old = shown(unit, "MainPID")
            os.kill(int(old), 9)
            until(f"{unit} is started again", lambda: shown(unit, "ActiveState") == "active" and
                  shown(unit, "MainPID") not in ("0", old), pause=0.2)
        until("both are connected again",
              lambda: market.tool("marketctl", "list-providers", check=False).returncode == 0 and
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
        need([shown(u, "Result") for u in units] == ["success"] * 3,
             "a unit failed when it was stopped")
    finally:
        job.end()
    return f"{job.lines()} lines"
