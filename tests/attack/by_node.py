# SPDX-License-Identifier: GPL-2.0-or-later
"""Attacks of a hostile node on other nodes and on the market."""
import hashlib
import json
import os
import struct
import subprocess

import client as c
from client import Refused, command, frame, job_id, pb
from by_stranger import revoked_certificate
from stage import answer, attempt, begun, ended, refused, root_job


# ---- the others

@attempt("hostile node", "greets as another node", "its certificate that it is evil")
def name_of_n1(s):
    for daemon in ("market", "n2"):
        said = s.inside(refused, s.as_node, daemon, "n1")
    return said


@attempt("hostile node", "brings an image as another node", "its certificate that it is evil")
def image_of_n1(s):
    return s.inside(refused, s.as_node, "n2", "n1", c.IMAGE)


@attempt("hostile node", "commands guests, and is certified as a provider alone",
         "its certificate is of a provider")
def lender_commands(s):
    return s.inside(refused, s.as_node, "n2", "lender", c.AGENT, s.lender)


@attempt("hostile node", "commands guests with the market's own certificate",
         "its certificate is of a market")
def market_commands(s):
    return s.inside(refused, s.as_node, "n2", "market", c.AGENT, s.state("market"))


@attempt("hostile node", "sends an image on a connection for commands", "unknown type")
def image_among_commands(s):
    def talk():
        with s.as_node("n2") as line:
            line.raw(struct.pack("<IHH", 10, c.IMAGE_BEGIN, 0))
            return refused(line.wait_for, c.IMAGE_RESULT)
    return s.inside(talk)


@attempt("hostile node", "sends a command of 3 GB", "over its limit")
def long_command(s):
    def talk():
        with s.as_node("n2") as line:
            line.raw(struct.pack("<IHH", 3 << 30, c.GUEST_COMMAND, 0))
            return refused(line.wait_for, c.GUEST_EVENT)
    return s.inside(talk)


@attempt("hostile node", "sends commands that are noise", "are not such a message")
def noise_command(s):
    def talk():
        with s.as_node("n2") as line:
            line.say(c.GUEST_COMMAND, b"\xff" * 200)
            return refused(line.wait_for, c.GUEST_EVENT)
    return s.inside(talk)


# Tickets. The market's key is in the attacker's hands where the claims are to be his.

@attempt("hostile node", "starts a job of root without a ticket", "wants the market's ticket")
def no_ticket(s):
    return s.begin(c.START, b"")


@attempt("hostile node", "makes ready for an image without a ticket", "wants the market's ticket")
def prepare_no_ticket(s):
    return s.begin(c.PREPARE, b"")


@attempt("hostile node", "has a checkpoint kept without a ticket", "wants the market's ticket")
def keep_no_ticket(s):
    return s.begin(c.KEEP, b"")


@attempt("hostile node", "signs a ticket with a key of its own", "does not use")
def own_key(s):
    return s.begin(c.START, c.Signer().ticket("evil", 5_000_000, "n2"))


@attempt("hostile node", "signs with a key of its own under the market's name", "has not signed")
def own_key_as_the_market(s):
    forged = c.Signer().ticket("evil", 5_000_000, "n2", name=s.signer.name)
    return s.begin(c.START, forged)


@attempt("hostile node", "changes one bit of a ticket", "has not signed")
def changed_bit(s):
    ticket = bytearray(s.ticket(destination="n2"))
    ticket[-1] ^= 1
    return s.begin(c.START, bytes(ticket))


@attempt("hostile node", "shows noise as a ticket", "is no ticket")
def noise_ticket(s):
    return s.begin(c.START, b"\xff" * 3000)


@attempt("hostile node", "shows a ticket of an hour ago", "has expired")
def expired_ticket(s):
    seq = next(s.seqs)
    return s.begin(c.START, s.ticket(destination="n2", seq=seq, age=3600), seq=seq)


@attempt("hostile node", "shows a ticket of the next hour", "a time that has not come")
def ticket_to_come(s):
    seq = next(s.seqs)
    return s.begin(c.START, s.ticket(destination="n2", seq=seq, age=-3600), seq=seq)


@attempt("hostile node", "gives its job the address of another job",
         "the ticket gives its job no address, not 10.79.64.64")
def address_of_another(s):
    seq = next(s.seqs)
    return s.begin(c.START, s.ticket(destination="n2", seq=seq), seq=seq,
                   of_spec={"f16": float(0x0a4f4040)})


@attempt("hostile node", "shows a ticket for another node", "the ticket is for node n3")
def ticket_for_n3(s):
    seq = next(s.seqs)
    return s.begin(c.START, s.ticket(destination="n3", seq=seq), seq=seq)


@attempt("hostile node", "shows the ticket of another of its jobs", "the ticket is for job evil.")
def ticket_of_another_job(s):
    return s.begin(c.START, s.ticket(destination="n2", seq=77_777))


@attempt("hostile node", "shows the ticket of another home", "the ticket is for job n1.1")
def ticket_of_another_home(s):
    return s.begin(c.START, s.signer.ticket("n1", next(s.numbers), "n2"))


@attempt("hostile node", "starts root with a ticket for a plain user",
         "of user 1000, not of user 0")
def ticket_of_another_user(s):
    seq = next(s.seqs)
    return s.begin(c.START, s.ticket(destination="n2", seq=seq, uid=1000), seq=seq)


@attempt("hostile node", "brings an image with a ticket for a job that begins",
         "a job that begins")
def ticket_without_source(s):
    seq = next(s.seqs)
    return s.begin(c.PREPARE, s.ticket(destination="n2", seq=seq), seq=seq)


@attempt("hostile node", "shows a ticket that names a revoked key", "whose key was revoked")
def ticket_of_a_revoked(s):
    if "keys are revoked" not in s.log("n2"):
        revoked_certificate(s)
        s.logged("n2", "keys are revoked")
    public = subprocess.run(["openssl", "pkey", "-in", f"{s.place}/gone/key.pem", "-pubout",
                             "-outform", "DER"], check=True, capture_output=True).stdout
    key = hashlib.sha256(public).hexdigest()
    seq = next(s.seqs)
    return s.begin(c.START, s.ticket(destination="n2", seq=seq, keys=[key]), seq=seq)


@attempt("hostile node", "starts a second copy with a ticket that was used",
         "the ticket has been used")
def ticket_twice(s):
    def talk():
        seq = next(s.seqs)
        ticket = s.ticket(destination="n2", seq=seq)
        with s.as_node("n2") as line:
            begun(line, seq, ticket)
            state, why = answer(line, command("evil", c.START, 2, seq, ticket), 2)
            assert state == c.FAILED
            ended(line, seq)
        return why
    return s.inside(talk)


@attempt("hostile node", "goes back to an older ticket of a job", "there is a newer ticket")
def ticket_before(s):
    def talk():
        seq = next(s.seqs)
        older, newer = (s.ticket(destination="n2", seq=seq) for _ in range(2))
        with s.as_node("n2") as line:
            begun(line, seq, newer)
            state, why = answer(line, command("evil", c.START, 2, seq, older), 2)
            assert state == c.FAILED
            ended(line, seq)
        return why
    return s.inside(talk)


@attempt("hostile node", "ships a job that was placed there to a node of its choice",
         "is for a move to n3, not to evil")
def ship_elsewhere(s):
    def talk():
        seq = next(s.seqs)
        with s.as_node("n2") as line:
            begun(line, seq, s.ticket(destination="n2", seq=seq))
            ship = s.ticket(source="n2", destination="n3", seq=seq)
            _, why = answer(line, command("evil", c.SHIP, 1, seq, ship, "evil", "10.0.0.9:7071",
                                          2), 1, lambda state, why: why)
            ended(line, seq)
        return why
    return s.inside(talk)


def commands_to(s, job, messages):
    """Sends messages(home, seq) of somebody else to the node where the job runs, and returns its
    answer."""
    s.market.until_runs(job.id)
    home, seq = job.id.split(".")

    def talk():
        with s.as_node(s.market.job(job.id)["where"]) as line:
            line.answers_within(2)  # it has greeted: only now is nothing to come
            for kind, body in messages(home, int(seq)):
                line.say(kind, body)
            return refused(line.wait_for, c.GUEST_EVENT)
    said = s.inside(talk)
    return "no answer" if "timed out" in said else said


def of_a_running_job(s, messages):
    job = root_job(s)
    try:
        said = commands_to(s, job, messages)
        assert s.runs(job)
        return said
    finally:
        job.end()


@attempt("hostile node", "has a job's memory sent to itself as a checkpoint of another's job",
         "no answer")
def checkpoint_of_anothers(s):
    return of_a_running_job(s, lambda home, seq: [
        (c.GUEST_COMMAND, command(home, c.CHECKPOINT, 1, seq, dest="evil",
                                  address="10.0.0.9:7071", new_epoch=2))])


@attempt("hostile node", "kills 4,200 jobs of its own that never were", "others begin")
def kill_what_never_was(s):
    def talk():
        with s.as_node("n2") as line:
            for seq in range(1, 4201):
                line.say(c.GUEST_COMMAND, command("evil", c.KILL, seq=seq + 2_000_000))
                if seq % 64 == 0:  # the answers are read, too
                    line.asks(command("evil", c.QUERY, seq=seq + 2_000_000))
            job = root_job(s)
            if s.market.job(job.id)["where"] != "n2":
                s.market.tool("marketctl", "--hold", "move", job.id, "n2")
            s.market.until_runs(job.id, "n2")
            job.end()
            return "others begin"
    return s.inside(talk)


@attempt("hostile node", "kills a job of another home", "no answer")
def kill_anothers(s):
    return of_a_running_job(s, lambda home, seq: [
        (c.GUEST_COMMAND, command(home, c.KILL, epoch, seq)) for epoch in range(1, 5)])


@attempt("hostile node", "types into the terminal of another home's job", "nothing came of it")
def types_into_anothers(s):
    job = s.market.srun("--node", "n1", "-p", 50, "cat", stdin=subprocess.PIPE)
    try:
        commands_to(s, job, lambda home, seq: [
            (c.STDIO_INPUT, pb(f1=job_id(home, seq), f2=epoch, f3=0, f4="rm -rf /\n"))
            for epoch in range(1, 5)])
        job.process.stdin.write(b"mine\n")
        job.process.stdin.close()
        job.wait()
        assert bytes(job.out) == b"mine\n", job.out
        return "nothing came of it"
    finally:
        job.end()


# Images.

def bring(s, body, kind=c.IMAGE_BEGIN, more=b""):
    def talk():
        with s.as_node("n2", role=c.IMAGE) as line:
            line.say(kind, body)
            if more:
                line.raw(more)
            result = line.wait_for(c.IMAGE_RESULT)
        assert not result.get(3), "it was taken"
        return result.get(4, b"").decode()
    try:
        return s.inside(talk)
    except Refused as e:
        return str(e)


def image_of(seq, epoch=2, sender="evil"):
    return pb(f1=job_id("evil", seq), f2=epoch, f3=1, f4=sender)


@attempt("hostile node", "sends an image that nobody waits for", "no image is expected")
def image_unasked(s):
    return bring(s, image_of(4242))


@attempt("hostile node", "sends memory ahead of an image that nobody waits for",
         "no memory is expected")
def memory_unasked(s):
    return bring(s, pb(f1=job_id("evil", 4242), f2=2, f3="evil", f4=1 << 40), c.PRECOPY_BEGIN)


@attempt("hostile node", "sends an image in another's name", "an image of another sender")
def image_of_another_sender(s):
    return bring(s, image_of(4242, sender="n3"))


def prepared(s, source, then):
    """Prepares a place on n2 for an image from `source`, and returns the result of then(seq)."""
    def make():
        seq = next(s.seqs)
        line = s.as_node("n2")
        ticket = s.ticket(source=source, destination="n2", seq=seq)
        state, why = answer(line, command("evil", c.PREPARE, 2, seq, ticket), 2,
                            lambda state, why: state in (c.PREPARED, c.FAILED))
        assert state == c.PREPARED, why
        return line, seq
    line, seq = s.inside(make)
    try:
        return then(seq)
    finally:
        s.inside(ended, line, seq, 2)
        line.socket.close()


@attempt("hostile node", "brings an image where the market has named another source",
         "no image is expected")
def image_from_elsewhere(s):
    return prepared(s, "n3", lambda seq: bring(s, image_of(seq)))


@attempt("hostile node", "sends memory ahead where the market has named another source",
         "no memory is expected")
def memory_from_elsewhere(s):
    return prepared(s, "n3", lambda seq: bring(
        s, pb(f1=job_id("evil", seq), f2=2, f3="evil", f4=1 << 20), c.PRECOPY_BEGIN))


@attempt("hostile node", "brings an image that is noise", "an unexpected section")
def image_of_noise(s):
    return prepared(s, "evil", lambda seq: bring(s, image_of(seq), more=os.urandom(1 << 16)))


@attempt("hostile node", "brings an image that is larger than its ticket allows",
         "larger than was agreed")
def image_too_large(s):
    head = struct.pack("<IIQ", 1, 10, 3 << 30) + b"core-1.img"
    return prepared(s, "evil", lambda seq: bring(s, image_of(seq), more=head))


@attempt("hostile node", "announces more memory than its ticket allows",
         "more memory than its ticket allows")
def memory_too_large(s):
    return prepared(s, "evil", lambda seq: bring(
        s, pb(f1=job_id("evil", seq), f2=2, f3="evil", f4=160 << 20), c.PRECOPY_BEGIN))


@attempt("hostile node", "commands what cannot be read, so that others lose the connection",
         "cannot read what its home orders")
def unreadable_command(s):
    """The node refuses the command for that job alone. It goes on to answer the same connection."""
    seq = next(s.seqs)

    def talk():
        with s.as_node("n2") as line:
            long = pb(f1=["sleep"], f2="/usr/bin/sleep", f3=["x" * 600_000], f4="/", f7=1000,
                      f8=1000)
            line.say(c.GUEST_COMMAND, pb(f1=job_id("evil", seq), f2=1, f3=c.START, f7=long, f9=1))
            told = line.wait_for(c.GUEST_EVENT)
            assert line.asks(command("evil", c.QUERY, 7, seq))[0] == c.UNKNOWN
            return told[7].decode()
    return s.inside(talk)


# ---- the market

@attempt("hostile node", "gives orders to the market", "unknown type")
def orders_the_market(s):
    return at_the_market(s, frame(c.ORDER, pb(f1=job_id("n1"), f2=99, f3=1, f4="evil")))


@attempt("hostile node", "sends the market a list of revoked keys", "unknown type")
def revokes_at_the_market(s):
    return at_the_market(s, frame(c.REVOKED, pb(f1="souk revocations 1\nnumber 9\n")))


@attempt("hostile node", "reports a job of another home",
         "reports job n1.1 of another home")
def reports_anothers_job(s):
    return at_the_market(s, frame(c.JOB_REPORT, pb(
        f1=job_id("n1", 1), f2=pb(f1=1_000_000, f4=1), f8=8, f18="x")))


WAITING, RUNNING_THERE, FROZEN, FINISHED = 1, 3, 6, 8


def own_job(seq, phase, where="", mb=64, order=0, in_place=False):
    """The report of a job that bids too little to get a place."""
    return frame(c.JOB_REPORT, pb(
        f1=job_id("evil", seq), f2=pb(f1=1, f3=mb, f4=1), f3=4444, f4="ghost",
        f7=1_700_000_000 * c.SECOND, f8=phase, f9=where, f11=1, f12=order,
        f19="cannot be dumped" if in_place else "", f30=in_place))


def while_it_claims(s, claims, then):
    """The answer of then(first job) while the market believes, or not, that these jobs are so."""
    seqs = [9_000 + next(s.seqs) for _ in claims]

    def talk():
        with s.as_node("market") as line:
            for seq, claim in zip(seqs, claims):
                line.raw(own_job(seq, **claim))
            s.market.until_job(f"evil.{seqs[-1]}", "is known", bool)
            try:
                return then(f"evil.{seqs[0]}")
            finally:
                for seq in seqs:
                    line.raw(own_job(seq, FINISHED))
                s.market.until_job(f"evil.{seqs[-1]}", "ends", lambda j: j["status"] == "finish")
    return s.inside(talk)


def why_code(s, job):
    return s.market.ctl("marketctl", "why", job)["reasons"][0]["code"]


@attempt("hostile node", "reports jobs that stand in the memory of others' nodes, to fill them",
         "place_unbacked")
def ghosts_stand(s):
    nodes = [p["node"] for p in s.market.providers() if p["node"].startswith("n")]

    def then(ghost):
        s.market.tool("srun", "--node", "n1", "-p", 50, "true")
        return why_code(s, ghost)
    return while_it_claims(s, [dict(phase=FROZEN, where=node, mb=1 << 20, in_place=True)
                               for node in nodes], then)


@attempt("hostile node", "reports jobs that run on others' nodes, to be in everybody's way",
         "place_unbacked")
def ghosts_run(s):
    def then(ghost):
        s.market.tool("srun", "--node", "n1", "-p", 50, "true")
        assert float(s.market.job(ghost)["cost"]) == 0
        return why_code(s, ghost)
    return while_it_claims(s, [dict(phase=RUNNING_THERE, where=f"n{i + 1}") for i in range(3)],
                           then)


@attempt("hostile node", "says that it has taken an order of a number that no record can hold",
         "and orders go on")
def order_of_no_market(s):
    def then(_):
        s.market.tool("srun", "--node", "n1", "-p", 50, "true")
        return "and orders go on"
    return while_it_claims(s, [dict(phase=WAITING, order=1 << 62)], then)


@attempt("hostile node", "offers another node at its own price",
         "evil reports as provider n1")
def offers_anothers_node(s):
    return at_the_market(s, frame(c.PROVIDER_REPORT, pb(f1="n1", f2=1, f3=1, f4=100, f5=64,
                                                        f6=1000)))


@attempt("provider", "reports a job that it would be the home of", "says that it is no home")
def lender_reports_a_job(s):
    def talk():
        with s.as_node("market", "lender", identity=s.lender) as line:
            line.say(c.JOB_REPORT, pb(f1=job_id("lender", 1), f2=pb(f1=1_000_000, f4=1), f3=4321,
                                      f4="user4321", f8=1))
            return str(line.wait_for(c.JOB_NOTE))
    return s.inside(talk)


def left_out(s, node, identity, *words):
    """The market's log says that this node may not say that; it stays connected."""
    def talk():
        with s.as_node("market", node, identity=identity) as line:
            line.say(*words)
            line.say(c.PING)
            line.wait_for(c.PONG)
    s.inside(talk)
    return s.logged("market", f'a word was left out NODE={node} type={words[0]} ')


@attempt("provider", "says that an order for another's job has failed", "a word was left out")
def lender_fails_orders(s):
    return left_out(s, "lender", s.lender, c.ORDER_FAILED,
                    pb(f1=job_id("n1", 1), f2=1, f3="n2", f4="x"))


@attempt("home", "offers its machine, and is certified as a home alone", "a word was left out")
def lodger_offers(s):
    said = left_out(s, "lodger", s.lodger, c.PROVIDER_REPORT,
                    pb(f1="lodger", f2=1, f3=1, f4=100, f5=64, f6=1000))
    offers = json.loads(s.market.tool("marketctl", "--json", "list-providers").stdout)
    assert not any(o["node"] == "lodger" and o["on_market"] for o in offers), offers
    return said


@attempt("home", "says what ran on its machine, and is certified as a home alone",
         "a word was left out")
def lodger_measures(s):
    return left_out(s, "lodger", s.lodger, c.USE_REPORT, pb(f1=pb(
        f1=pb(f1=job_id("n1", 1), f2=1), f3=1, f5=1)))


@attempt("hostile node", "renews its certificate under the name n1", "the same name")
def renews_as_n1(s):
    key = f"{s.evil}/key.pem"
    request = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=n1", "-outform",
                              "DER"], check=True, capture_output=True).stdout
    return at_the_market(s, frame(c.RENEW, pb(f1=request)))


@attempt("hostile node", "renews its certificate for another key", "the same key")
def renews_another_key(s):
    key = f"{s.place}/another.pem"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key],
                   check=True, capture_output=True)
    request = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=evil",
                              "-outform", "DER"], check=True, capture_output=True).stdout
    return at_the_market(s, frame(c.RENEW, pb(f1=request)))


@attempt("hostile node", "sends noise as a request for a certificate",
         "no request for a certificate")
def noise_request(s):
    return at_the_market(s, frame(c.RENEW, pb(f1=os.urandom(500))))


def at_the_market(s, words):
    def talk():
        with s.as_node("market") as line:
            line.raw(words)
            return refused(line.wait_for, -1)
    return s.inside(talk)
