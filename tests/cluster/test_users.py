# SPDX-License-Identifier: GPL-2.0-or-later
"""Users have limits, tested here on real daemons."""
import datetime
import json

import pytest

from codes import refused

LONG = ["sleep", "100000"]


def users(m, *who):
    return json.loads(m.tool("marketctl", "--json", "user", "show", *who).stdout)


@pytest.fixture
def unlimited(market):
    yield market
    market.tool("marketctl", "user", "unlimit", "0")


def test_a_user_runs_no_more_jobs_than_an_operator_lets_him_and_sees_why(unlimited):
    m = unlimited
    m.tool("marketctl", "user", "limit", "0", "--jobs", "1")
    low, high = m.srun("-p", "30", *LONG), m.srun("-p", "40", *LONG)
    m.until_runs(high.id)
    held = m.until_reason(low.id, "user_jobs")
    assert held["status"] in ("wait", "suspend") and held["reason"]["count"] == "1 job", held
    assert held["comment"] in m.tool("marketctl", "job", low.id).stdout
    assert users(m)[0]["running_jobs"] == 1 and users(m)[0]["held_jobs"] == 1
    m.kill_daemon("market")
    m.until_up()
    m.until_reason(low.id, "user_jobs")
    m.tool("marketctl", "user", "limit", "root", "--jobs", "none")
    m.until_runs(low.id)
    assert users(m) == []


def test_who_has_spent_his_day_is_frozen_and_a_higher_limit_wakes_him(unlimited):
    m = unlimited
    job = m.srun("-p", "40", *LONG)
    m.until_runs(job.id)
    spent = users(m, "0")[0]["spent_today"]
    # With that much money the job runs for some seconds.
    m.tool("marketctl", "user", "limit", "0", "--spend-per-day", f"{spent + 0.002:.6f}")
    m.until_job(job.id, "is frozen",
                lambda j: j["status"] == "suspend" and j["reason"]["code"] == "user_day")
    shown = users(m)[0]
    assert shown["day_is_spent"] and shown["spent_today"] <= shown["spend_per_day"], shown
    m.tool("marketctl", "user", "limit", "0", "--spend-per-day", f"{spent + 1:.6f}")
    m.until_runs(job.id)


def test_a_user_runs_jobs_in_his_hours_alone(unlimited):
    m = unlimited
    job = m.srun("-p", "40", *LONG)
    m.until_runs(job.id)
    now = datetime.datetime.now()
    later = now + datetime.timedelta(hours=3)
    frames = f"{later:%a} {later:%H}:00-{later:%H}:30".lower()
    m.tool("marketctl", "user", "limit", "0", "--hours", frames)
    m.until_job(job.id, "is frozen",
                lambda j: j["status"] == "suspend" and j["reason"]["code"] == "user_hours")
    assert users(m)[0]["hours"] == frames and users(m)[0]["is_closed"]
    m.kill_daemon("market")
    m.until_up()
    m.until_reason(job.id, "user_hours")
    days = f"{now:%a},{later:%a}" if now.day != later.day else f"{now:%a}"
    m.tool("marketctl", "user", "limit", "0", "--hours", f"{days} 0:00-24:00".lower())
    m.until_runs(job.id)
    wrong = m.tool("marketctl", "user", "limit", "0", "--hours", "mon 9", check=False)
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1, wrong.stderr


def test_only_root_sets_limits_and_each_sees_his_own(market):
    def as_nobody(*args):
        return market.tool("marketctl", *args, check=False, user=65534, group=65534,
                           extra_groups=[])
    refused(as_nobody("user", "limit", "65534", "--jobs", "3"), "not_allowed")
    refused(as_nobody("user", "show", "0"), "not_allowed")
    assert json.loads(as_nobody("--json", "user", "show").stdout)[0]["uid"] == 65534
    refused(market.tool("marketctl", "user", "limit", "who-is-that", "--jobs", "3", check=False),
            "not_found")


def test_a_node_that_cannot_dump_jobs_of_other_users_says_so_and_does_not_try(market):
    line = next(line for line in open("/proc/self/status") if line.startswith("CapEff"))
    effective = int(line.split()[1], 16)
    shown = market.ctl("pvdctl", "--node", "n1", "status"), *market.providers()
    if effective >> 24 & 1:  # CAP_SYS_RESOURCE
        assert not [s for s in shown if "restriction" in s]
        pytest.skip("this root has CAP_SYS_RESOURCE: jobs of any user can move here")
    assert all("CAP_SYS_RESOURCE" in s["restriction"] for s in shown), shown
    assert "CAP_SYS_RESOURCE" in market.tool("pvdctl", "--node", "n1", "status").stdout
    assert "CAP_SYS_RESOURCE" in market.tool("marketctl", "list-providers").stdout
    job = market.srun("-p", "40", "sleep", "1000", user=65534, group=65534, extra_groups=[],
                      cwd="/")
    market.until_runs(job.id)
    seen = market.until_job(job.id, "is known not to move", lambda j: j.get("can_move") is False)
    assert seen["cannot_move_code"] == "lacks_sys_resource", seen
    market.tool("marketctl", "move", job.id, "n2", check=False)
    assert job.process.poll() is None
    logs = "".join(text for _, text in market.logs())
    assert "rlimit" not in logs
    market.tool("marketctl", "cancel", job.id)
    job.wait()


def test_of_another_users_job_one_sees_its_id_its_user_and_its_state(market):
    m = market
    job = m.srun("-p", "30", "--name", "secret-name", "sh", "-c", "secret=1; sleep 100000")
    m.until_runs(job.id)

    def as_nobody(*args, check=True):
        return m.tool("marketctl", *args, check=check, user=65534, group=65534, extra_groups=[])

    seen = [json.loads(as_nobody("--json", "job", job.id).stdout),
            *(j for j in json.loads(as_nobody("--json", "list-jobs", "--state", "all").stdout)
              if j["id"] == job.id)]
    assert seen == 2 * [{"id": job.id, "user": "root", "uid": 0, "status": "run"}]
    for args in (["list-jobs"], ["job", job.id], ["job", job.id, "--story"]):
        said = as_nobody(*args, check=False)
        assert "secret" not in said.stdout + said.stderr
    refused(as_nobody("job", job.id, "--story", check=False), "not_allowed")
    own = json.loads(m.tool("marketctl", "--json", "job", job.id).stdout)
    assert own["name"] == "secret-name" and "secret=1" in own["command"] and own["value"] == 30
    m.tool("marketctl", "cancel", job.id)
