# SPDX-License-Identifier: GPL-2.0-or-later
"""A node dies for good: its job goes on from its last checkpoint, its output says where, and
nothing of it runs twice."""
import contextlib
import errno
import os
import re
import signal
import subprocess

import programs
from conftest import alive, kill, own_number, read_text, until
from test_crash import Absence, kill_for_now
from test_outage import Outage, restart


def at_n2(market, *options):
    """A chain job of n1 that runs on n2."""
    job = market.srun(*options, "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    return job


def checkpoint(market, job):
    """Waits for a checkpoint that was made from now on."""
    epoch = newest_image(market, job)
    return until("a checkpoint lies at its home", lambda: newest_image(market, job) > epoch and
                 market.job(job.id).get("checkpoint_node") == "n1", 60)


def images(market, job, node="n1"):
    directory = f"{market.run_dir}/state/{node}/images"
    return ([n for n in os.listdir(directory) if n.startswith(job.id + ".")]
            if os.path.isdir(directory) else [])


def newest_image(market, job):
    return max([int(n.split(".")[2]) for n in images(market, job) if not n.endswith(".part")],
               default=0)


def lose(market, name, job):
    """The node's daemon and its capsule of the job die, and the daemon stays away: only within an
    Absence."""
    kill_for_now(market, name)
    for _, _, pids in market.capsules(job.id, name):
        kill(sorted(filter(alive, pids), key=own_number))  # PID 1 first: else it tells their end
    until("its capsule is dead", lambda: not market.capsules(job.id, name))
    until("the market knows",
          lambda: not [p for p in market.providers() if p["node"] == name and p["connected"]])


def check_spliced(job, again):
    """The chain until the node was lost, and behind it the chain from the checkpoint on, `again`
    bytes of it once more."""
    text = bytes(job.out).decode()
    end = int(text.splitlines()[-1].split()[1])
    wanted = programs.chain_text(end)  # that of a job that nothing befell
    assert len(text) == len(wanted) + again
    cut = len(os.path.commonprefix([text, programs.chain_text(end + 1000)]))
    # The whole text comes again if the checkpoint is from before its first line.
    assert 0 < again <= cut and text[cut:] == wanted[cut - again:]


def past_a_checkpoint(market):
    """Starts a chain job of n1 on n2, and prints some lines after its home has got a checkpoint of
    it."""
    job = at_n2(market, "--checkpoint-every", "1s")
    checkpoint(market, job)
    job.printed(job.lines() + 20)
    return job


def test_a_job_whose_node_dies_for_good_goes_on_from_its_checkpoint_elsewhere(market):
    job = past_a_checkpoint(market)
    with Absence(market):
        lose(market, "n2", job)
        market.tool("marketctl", "node", "lost", "n2")
        moved = market.until_job(job.id, "runs elsewhere", lambda j: j["status"] == "run" and
                                 "going_to" not in j and j["where"] != "n2")
        assert moved["where"] in ("n1", "n3") and moved["resumes"] == 1
        job.printed(job.lines() + 20)
        mark = until("the mark",
                     lambda: [t for t in job.told if "goes on from its checkpoint" in t])
    assert len(mark) == 1
    again = int(re.search(r"(\d+) bytes of stdout and 0 of stderr were written after that",
                          mark[0])[1])
    market.until_up()
    checkpoint(market, job)  # of the new epoch
    job.process.stdin.close()
    assert job.wait() == 7
    check_spliced(job, again)
    until("no image of it is left",
          lambda: not [i for n in ("n1", "n2", "n3") for i in images(market, job, n)])


def test_checkpoints_take_the_place_of_one_another_and_the_output_is_that_of_a_job_without(market):
    job = at_n2(market, "--checkpoint-every", "1s")
    for _ in range(3):
        checkpoint(market, job)
        # The last, the one before while it is dropped, the next.
        assert len(images(market, job)) <= 3
    seen = market.job(job.id)
    assert (seen["checkpoint_bytes"] > 100_000 and seen["checkpoint_age_s"] < 60 and
            "resumes" not in seen)
    market.tool("marketctl", "move", job.id, "n3")
    market.until_job(job.id, "has moved", lambda j: j["migrations"] >= 2)
    checkpoint(market, job)
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out)
    until("no image of it is left", lambda: not images(market, job))


@contextlib.contextmanager
def configured(market, node, change):
    """Runs that node's agentd with another configuration, and with the old one afterwards."""
    path = f"{market.run_dir}/{node}/agentd.conf"
    before = read_text(path)
    with open(path, "w") as f:
        f.write(change(before))
    market.kill_daemon(node)
    try:
        yield
    finally:
        with open(path, "w") as f:
            f.write(before)
        market.kill_daemon(node)
        market.until_up()


def test_a_home_that_listens_on_every_address_gets_its_checkpoints_where_the_market_sees_it(market):
    with configured(market, "n1",
                    lambda text: re.sub(r'^listen = ".*:', 'listen = "0.0.0.0:', text, flags=re.M)):
        market.until_up()
        job = at_n2(market, "--checkpoint-every", "1s")
        checkpoint(market, job)
        # The home keeps what the market has told it. It needs that when it starts again while the
        # market is away.
        with Outage(market):
            restart(market, "n1", signal.SIGKILL)
            newest = newest_image(market, job)
            until("a checkpoint without the market", lambda: newest_image(market, job) > newest, 60)
        market.until_up()
        assert "checkpoint_trouble" not in market.job(job.id)
        job.process.stdin.close()
        assert job.wait() == 7
        programs.check_chain(job.out)


def fill(path):
    """Fills the disk until nothing more has room on it, not even in blocks that were given back
    meanwhile."""
    with open(path, "ab", buffering=0) as f:
        try:
            while f.write(bytes(4096)):
                pass
        except OSError as full:
            assert full.errno == errno.ENOSPC


def test_a_checkpoint_that_fails_shows_in_the_job_and_is_said_once_at_its_terminal(market):
    job = at_n2(market, "--checkpoint-every", "1s")
    checkpoint(market, job)
    keep = f"{market.run_dir}/state/n1/images"
    before = newest_image(market, job)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", keep], check=True)
    try:
        market.kill_daemon("n1")  # it opens the directory anew
        job.printed(job.lines() + 300)  # its terminal is attached again: it can be told
        checkpoint(market, job)  # one that the end of its home has cut off is not what it says

        def says_why(seen):
            fill(keep + "/filler")  # a checkpoint before the last may just have gone
            return re.search("room|space", seen.get("checkpoint_trouble", ""))
        market.until_job(job.id, "says why", says_why)
        assert "last try failed: " in market.tool("marketctl", "job", job.id).stdout
        job.printed(job.lines() + 300)
        said = [w for w in job.words if "no checkpoint" in w]
        # The room may run out in the middle of a try. Then the reason reads otherwise than that of
        # the next try.
        assert 1 <= len(said) <= 2 and len(set(said)) == len(said), job.words
    finally:
        subprocess.run(["umount", "-l", keep], check=True)
        market.kill_daemon("n1")
    market.until_up()
    until("a checkpoint again", lambda: newest_image(market, job) > before, 60)
    market.until_job(job.id, "the trouble is over", lambda j: "checkpoint_trouble" not in j)
    job.process.stdin.close()
    assert job.wait() == 7


def test_images_leave_agentd_a_reserve_of_its_disk(market):
    job = market.srun("-p", 50, "sleep", "600")
    here = market.until_runs(job.id)["where"]
    # The key stands before the tables of the file, and more than any disk has is kept.
    with configured(market, here, lambda text: 'disk_reserve_mb = "1000000G"\n' + text):
        market.until_up()
        market.until_runs(job.id, here)
        market.tool("marketctl", "--hold", "freeze", job.id)
        why = market.until_job(job.id, "is not frozen", lambda j: "for itself" in str(j))
        assert "(disk_reserve_mb)" in str(why), why
        market.tool("marketctl", "release", job.id, check=False)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    job.end()
