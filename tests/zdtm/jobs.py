# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests as jobs of one market: each is moved, written down, frozen and thawed, and then asked
how it is."""
import contextlib
import subprocess
import time

import suite
from conftest import Late, Market, Standing


# Long enough that no second one falls into the end of a test: some end by one read of all bytes,
# which any stop cuts short, and which takes 3 s on a half-closed connection that CRIU has restored.
CHECKPOINT_EVERY = "15s"


def cell(failed, refused, said):
    """Makes one cell of the table from the failure on the way, the refusal, and the test's own
    verdict at its end."""
    if failed == "does not start":
        return {"result": "no start", "why": said or failed}
    if failed or said:
        return {"result": "fail",
                "why": "; ".join(w for w in (failed, said, refused and f"refused: {refused}") if w)}
    return {"result": "refused", "why": refused} if refused else {"result": "pass", "why": ""}


class Gone(Exception):
    """The job cannot be asked any more; says why."""


class Jobs(Standing):
    def __init__(self, options, top):
        self.options, self.top = options, top
        self.market = Market("--nodes", options.nodes, "--cpus", 64, "--memory", 1 << 20)

    def __enter__(self):
        super().__enter__()
        self.nodes = self.market.nodes()
        return self

    def run(self, test, form):
        ballast = 0 if form == "small" else self.options.ballast
        where = f"{self.top}/{form}/{test.name}"
        command = test.prepare(where)
        options = ["-p", 50, "--name", test.name, "--move", "auto" if form == "small" else form,
                   "--net", "own" if test.own_network else "host"]
        if not self.options.no_checkpoint:
            options += ["--checkpoint-every", CHECKPOINT_EVERY]
        env = {**self.market.env, **suite.ENVIRONMENT}
        job = self.market.srun(*options, self.options.job, ballast, f"{test.name}.pid", *command,
                               env=env, cwd=where, stdin=subprocess.PIPE)
        one = One(self, job)
        failed = None
        try:
            if not one.wait(lambda: b"ready\n" in job.out or job.process.poll() is not None,
                            "it starts"):
                failed = "does not start"
            elif b"ready\n" not in job.out:
                failed = "does not start"
            else:
                one.shove(self.options.moves)
                one.finish()
        except Gone as e:
            failed = str(e)
        except (Late, AssertionError) as e:
            failed = str(e)[:300]
        finally:
            job.end()
            if failed and any("srun: job " in w for w in job.words):
                self.market.tool("marketctl", "cancel", job.id, check=False)
            self.market.jobs_here.remove(job)
        return cell(failed, one.refused, suite.verdict(where, test.name))


class One:
    def __init__(self, jobs, job):
        self.market, self.nodes, self.limit, self.job = (jobs.market, jobs.nodes,
                                                         jobs.options.limit, job)
        self.checkpoints, self.refused, self.heard = not jobs.options.no_checkpoint, None, 0

    def wait(self, probe, what, must=False):
        end, pause = time.monotonic() + self.limit, 0.02
        while not (answer := probe()):
            if time.monotonic() > end:
                if must:
                    raise Gone(f"not within {self.limit:g} s: {what}")
                return None
            time.sleep(pause)
            pause = min(pause * 1.3, 0.25)
        return answer

    def asked(self, probe, what):
        """The market's record of the job, as soon as that holds; Gone if the job has ended
        before."""
        def look():
            seen = self.market.job(self.job.id)
            if seen.get("status") == "finish":
                raise Gone(f"{what}: it ended: {self.said() or seen.get('comment', '')}")
            return seen if seen and probe(seen) else None
        try:
            return self.wait(look, what, must=True)
        except Gone as e:
            raise Gone(f"{e}; {self.market.job(self.job.id).get('comment', '')}"[:300]) from None

    def said(self):
        lines = bytes(self.job.out).decode(errors="replace").splitlines()
        return "; ".join(line for line in lines if line.startswith("failed"))

    def order(self, verb, there, done):
        """True if it came to that; else it was refused, and goes on as it was."""
        if self.try_order(verb, there, done):
            return True
        self.market.tool("marketctl", "release", self.job.id, check=False)
        return False

    def try_order(self, verb, there, done):
        before, self.heard = self.market.job(self.job.id), len(self.job.words)
        where = [there] if there else []
        tool = self.market.tool("marketctl", "--hold", verb, self.job.id, *where, check=False,
                                limit=self.limit)
        failures = (lambda: self.market.job(self.job.id).get("failed_moves", 0) -
                    before.get("failed_moves", 0))
        if tool.returncode != 0 and not failures():
            self.note(verb, tool.stderr.strip(), before)
            self.asked(lambda j: j["status"] == "run" and "going_to" not in j or done(j), verb)
            return False
        ended = lambda j: (j["failed_moves"] > before["failed_moves"] and "going_to" not in j and
                           j["status"] in ("run", "suspend"))
        seen = self.asked(lambda j: done(j) or ended(j), verb)
        if done(seen):
            return True
        self.note(verb, seen.get("comment", ""), seen)
        return False

    def note(self, verb, why, seen):
        """Notes why a step was refused. The words on the terminal say more than the market does,
        which may keep its reason for the next try."""
        told = [w.split(": ", 2)[2] for w in self.job.words[self.heard:] if w.count(": ") >= 2]
        told = [w for w in told if any(t in w for t in ("annot", "Error", "refuse", "fail"))]
        self.refused = (self.refused or
                        f"{verb}: {seen.get('cannot_move') or (told or [why])[0]}"[:300])

    def next_to(self, here):
        """Another node, not the same for all jobs: a node has as many places as this machine has
        processors."""
        step = 1 + int(self.job.id.split(".")[1]) % (len(self.nodes) - 1)
        return self.nodes[(self.nodes.index(here) + step) % len(self.nodes)]

    def shove(self, moves):
        here = self.asked(lambda j: j["status"] == "run" and "going_to" not in j, "runs")["where"]
        runs_at = (lambda node: lambda j: j["status"] == "run" and j["where"] == node and
                   "going_to" not in j)
        for i in range(moves):
            there = self.next_to(here)
            if not self.order("move", there, runs_at(there)):
                return
            here = there
            if i == 0 and self.checkpoints and not self.checkpoint():
                return
        if not self.order("freeze", None, lambda j: j["status"] == "suspend"):
            return
        there = self.next_to(here)
        if not self.order("thaw", there, runs_at(there)):
            raise Gone(f"cannot be thawed: {self.refused}")

    def checkpoint(self):
        """Waits for a checkpoint that was made from now on; False if none could be made."""
        begun, self.heard = time.time(), len(self.job.words)
        failed = (lambda j: "checkpoint" in j.get("comment", "") and
                  "no checkpoint" in j.get("comment", ""))
        seen = self.asked(lambda j: "checkpoint_node" in j or failed(j) or time.time() - begun > 60,
                          "a checkpoint")
        if "checkpoint_node" in seen:
            return True
        self.note("checkpoint", seen.get("comment") or "none within 60 s", seen)
        return False

    def finish(self):
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself: its status tells
            self.job.process.stdin.write(b"\n")
            self.job.process.stdin.close()
        status = self.job.wait(self.limit)
        if status != 0:
            raise Gone(f"it ended with {status}: {self.said() or ' '.join(self.job.told[-2:])}")
