# SPDX-License-Identifier: GPL-2.0-or-later
"""The stage on which attempts are made: a market of real daemons with an attacker in it. It also
defines what an attempt is."""
import functools
import json
import os
import shutil
import ssl
import subprocess
import time

import client as c
from client import Connection, Refused, command, hello

SOMEBODY = 4321
LIMIT = float(os.environ.get("SOUK_TEST_LIMIT", 40))  # seconds, as in tests/cluster
ATTEMPTS = []


class Attempt:
    def __init__(self, who, what, got, run):
        self.who, self.what, self.got, self.run = who, what, got, run
        self.name = run.__name__


def attempt(who, what, got):
    def add(run):
        ATTEMPTS.append(Attempt(who, what, got, run))
        return run
    return add


def refused(call, *args, **how):
    """Returns the text of the refusal. A call that is not refused fails the test, because then the
    attacker has what he wants."""
    try:
        answer = call(*args, **how)
    except (Refused, ssl.SSLError, OSError) as e:
        return str(e)
    raise AssertionError(f"not refused: {answer!r}")


class Stage:
    """A market with nodes n1, n2, n3, and its attackers. `evil` is enrolled as a node and has no
    daemon; `lender` is too, and may not be a home; `lodger` may only be a home; `ranged` may speak
    for users 9000-9009."""

    def __init__(self, market, place):
        self.market, self.place = market, place
        self.numbers = iter(range(1_000_000, 2_000_000))
        self.seqs = iter(range(1, 1_000_000))
        self.signer = c.Signer(f"{self.state('market')}/ticket.keys")
        self.evil = self.enrol("evil")
        self.lender = self.enrol("lender", "--roles", "provider")
        self.lodger = self.enrol("lodger", "--roles", "home")
        self.ranged = self.enrol("ranged", "--users", "9000-9009")

    def state(self, daemon):
        return f"{self.market.run_dir}/state/{daemon}/identity"

    def address(self, daemon):
        return self.market.daemon(daemon)["address"]

    def log(self, daemon):
        with open(f"{self.market.run_dir}/{daemon}/log", errors="replace") as f:
            return f.read()

    def logged(self, daemon, words):
        end = time.monotonic() + LIMIT
        while words not in self.log(daemon):
            assert time.monotonic() < end, (
                f"{daemon} does not log '{words}'", self.log(daemon)[-500:])
            time.sleep(0.02)
        return words

    def inside(self, call, *args, **how):
        """Calls this on the network of the machines."""
        return self.market.in_netns("fabric", functools.partial(call, *args, **how))

    def token(self, name, *words):
        return self.market.tool("souk", "token", "create", name, *words).stdout.strip()

    def join(self, secret, name, home=None):
        enter = ["nsenter", f"--net=/run/netns/{self.market.tag}-fabric"]
        home = home or f"{self.place}/{name}"
        return subprocess.run(
            [*enter, f"{os.environ['SOUK_BIN']}/souk", "setup", "node", "--join", secret, "--name",
             name, "--market", self.address("market"), "--identity", home, "--config",
             f"{self.place}/{name}.conf", "--no-restart"], capture_output=True, text=True,
            env=self.market.env, timeout=60)

    def enrol(self, name, *words):
        done = self.join(self.token(name, *words), name)
        assert done.returncode == 0, done
        return f"{self.place}/{name}"

    def as_node(self, daemon, node="evil", role=c.AGENT, identity=None, **how):
        """A connection of that node, which has greeted."""
        return Connection(self.address(daemon), identity or self.evil,
                          hello(node, role), **how)

    def leaf(self, name, begins, ends):
        """A certificate of this market's own CA, of other dates than it would give."""
        d = f"{self.place}/leaf-{name}"
        os.makedirs(d, exist_ok=True)
        ca = self.state("market")

        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=d)
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem")
        openssl("req", "-new", "-key", "key.pem", "-subj", f"/CN={name}", "-out", "csr.pem")
        with open(f"{d}/ext", "w") as f:
            f.write("basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                    "extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName="
                    f"URI:souk:node/{name},URI:souk:role/home,URI:souk:role/provider\n")
        with open(f"{d}/ca.conf", "w") as f:
            f.write("[ca]\ndefault_ca=m\n[m]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n"
                    "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n")
        open(f"{d}/index", "w").close()
        with open(f"{d}/serial", "w") as f:
            f.write("7f01\n")
        openssl("ca", "-batch", "-config", "ca.conf", "-cert", f"{ca}/issuing.pem", "-keyfile",
                f"{ca}/issuing.key", "-in", "csr.pem", "-out", "own.pem", "-notext", "-extfile",
                "ext", "-startdate", begins, "-enddate", ends, "-preserveDN")
        with open(f"{d}/certificate.pem", "w") as out:
            for path in (f"{d}/own.pem", f"{ca}/issuing.pem"):
                with open(path) as f:
                    out.write(f.read())
        return d

    def somebody(self, *words, check=False, **how):
        """A tool, run by a plain user. (He may not be able to come to where it lies.)"""
        tool = f"{self.place}/{words[0]}"
        if not os.path.exists(tool):
            shutil.copy(f"{os.environ['SOUK_BIN']}/{words[0]}", tool)
        env = {**self.market.env, "HOME": "/"}
        done = subprocess.run([tool, *map(str, words[1:])], env=env, cwd="/", capture_output=True,
                              user=SOMEBODY, group=SOMEBODY, extra_groups=[], text=True,
                              timeout=60, stdin=subprocess.DEVNULL, **how)
        assert not check or done.returncode == 0, done
        return done

    def user_refused(self, *words):
        """The code that a plain user is refused with."""
        done = self.somebody(*words)
        assert done.returncode != 0, done
        return json.loads(done.stderr)["error"]["code"]

    def in_a_job(self, script):
        """Runs a script in a job of a plain user, and returns what the job prints."""
        return self.somebody("srun", "-p", 50, "--node", "n1", "/usr/bin/python3", "-c", script,
                             check=True).stdout.strip()

    def ticket(self, **how):
        how.setdefault("number", next(self.numbers))
        return self.signer.ticket("evil", **how)

    def begin(self, verb, ticket, daemon="n2", home="evil", **how):
        """Returns that guest's answer to a start, prepare or keep of `home`."""
        how.setdefault("seq", next(self.seqs))

        def talk():
            with self.as_node(daemon) as line:
                state, why = line.asks(command(home, verb, ticket=ticket, **how))
            assert state == c.FAILED, (state, why)
            return why
        return self.inside(talk)

    def runs(self, job):
        return self.market.job(job.id)["status"] == "run"


def root_job(s):
    job = s.market.srun("--node", "n1", "-p", 50, "sleep", "600")
    s.market.until_runs(job.id)
    return job


def answer(line, asked, epoch, enough=lambda state, why: True):
    """Asks the guest, and returns what it says of that epoch: its state and why."""
    line.say(c.GUEST_COMMAND, asked)
    while True:
        event = line.wait_for(c.GUEST_EVENT)
        state, why = event.get(3, 0), event.get(7, b"").decode(errors="replace")
        if event.get(2) == epoch and enough(state, why):
            return state, why


def begun(line, seq, ticket):
    state, why = answer(line, command("evil", c.START, 1, seq, ticket), 1,
                        lambda state, why: state in (c.RUNNING, c.FAILED))
    assert state == c.RUNNING, why


def ended(line, seq, epoch=1):
    over = (c.KILLED, c.EXITED, c.FAILED, c.UNKNOWN)
    if answer(line, command("evil", c.KILL, epoch, seq), epoch,
              lambda state, why: state in over)[0] != c.UNKNOWN:
        answer(line, command("evil", c.DROP, epoch, seq), epoch,
               lambda state, why: state == c.UNKNOWN)
