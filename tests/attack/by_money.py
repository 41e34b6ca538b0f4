# SPDX-License-Identifier: GPL-2.0-or-later
"""Attacks on money, by a plain user, a job, a hostile user and a hostile node."""
import subprocess

from codes import CAUSES
import client as c
from client import frame, hello, pb
from stage import SOMEBODY, attempt

# This script writes its words to a socket of this machine, and prints the body of the first answer.
ASK = """
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
s.sendall(bytes.fromhex(sys.argv[2]))
got = b""
while True:
    while len(got) < 8 or len(got) < 8 + struct.unpack_from("<I", got)[0]:
        part = s.recv(65536)
        if not part: sys.exit("closed")
        got += part
    n, kind = struct.unpack_from("<IH", got)
    if kind in (3, 6): break
    got = got[8 + n:]
print(got[8:8 + n].hex())
"""


def request(uid, verb, *args):
    return pb(f1=1, f2=uid, f3=verb, f4=list(args))


def refusal(reply):
    """Its code; an error may come in the place of an answer."""
    error = isinstance(reply.get(1), bytes)
    assert error or not reply.get(2), reply
    return CAUSES[reply.get(2 if error else 7, 0)]


def asks(s, verb, *args, uid=0):
    """A plain user's own program, which says that it is this user's (root's)."""
    return refusal(told(s, request(uid, verb, *args)))


def told(s, words):
    words = frame(c.HELLO, hello("", c.TOOL)) + frame(c.CTL_REQUEST, words)
    done = subprocess.run(["/usr/bin/python3", "-c", ASK, s.market.daemon("market")["socket"],
                           words.hex()], capture_output=True, text=True, user=SOMEBODY,
                          group=SOMEBODY, extra_groups=[], timeout=60)
    assert done.returncode == 0, done
    return c.parse(bytes.fromhex(done.stdout.strip()))


def node_asks(s, uid, verb, *args):
    """The node `ranged`, in the name of that user."""
    def talk():
        with s.as_node("market", "ranged", identity=s.ranged) as line:
            line.say(c.CTL_REQUEST, request(uid, verb, *args))
            while True:
                kind, body = line.hear()
                if kind == c.CTL_REPLY:
                    return refusal(c.parse(body))
    return s.inside(talk)


def balance(s, who):
    return s.market.ctl("marketctl", "account", who)[0]["balance"]


# ---- a plain user

@attempt("plain user", "deposits money on his own account", "not_allowed")
def deposits(s):
    return s.user_refused("marketctl", "deposit", SOMEBODY, "5")


@attempt("plain user", "withdraws money", "not_allowed")
def withdraws(s):
    return s.user_refused("marketctl", "withdraw", SOMEBODY, "5")


@attempt("plain user", "sends himself root's money", "not_allowed")
def takes(s):
    return s.user_refused("marketctl", "transfer", SOMEBODY, "5", "--of", "0")


@attempt("plain user", "pays himself what a node has earned", "not_allowed")
def pays_himself(s):
    return s.user_refused("marketctl", "payout", "n1", "all", SOMEBODY)


@attempt("plain user", "gives himself an allowance", "not_allowed")
def gives_allowance(s):
    return s.user_refused("marketctl", "user", "limit", SOMEBODY, "--allowance", "100", "--every",
                          "day")


@attempt("plain user", "joins a project, to have his jobs paid by it", "not_allowed")
def joins_project(s):
    s.market.tool("marketctl", "project", "add", "physics")
    return s.user_refused("marketctl", "project", "add", "physics", str(SOMEBODY))


@attempt("plain user", "reads the statement of a project of which he is no member",
         "not_allowed")
def reads_project(s):
    s.market.tool("marketctl", "project", "add", "physics")
    return s.user_refused("marketctl", "statement", "physics")


@attempt("plain user", "gives himself credit", "not_allowed")
def gives_credit(s):
    return s.user_refused("marketctl", "user", "limit", SOMEBODY, "--credit", "100")


@attempt("plain user", "reads root's statement", "not_allowed")
def reads_statement(s):
    return s.user_refused("marketctl", "statement", "0")


@attempt("plain user", "says that he is root, and sends himself root's money", "not_allowed")
def says_root(s):
    return asks(s, "transfer", "0", str(SOMEBODY), "5", "")


@attempt("plain user", "says that he is root, and deposits money", "not_allowed")
def says_root_deposits(s):
    return asks(s, "deposit", str(SOMEBODY), "5", "")


# ---- a hostile user, with money of his own

@attempt("hostile user", "sends an amount below nothing, so that he gets it", "invalid")
def sends_negative(s):
    return asks(s, "transfer", "-", "0", "-5", "", uid=SOMEBODY)


@attempt("hostile user", "sends nothing, again and again", "invalid")
def sends_nothing(s):
    return asks(s, "transfer", "-", "0", "0", "", uid=SOMEBODY)


@attempt("hostile user", "sends an amount that a number cannot hold", "invalid")
def sends_endless(s):
    return asks(s, "transfer", "-", "0", "99999999999999999999", "", uid=SOMEBODY)


@attempt("hostile user", "sends more than he has", "not_possible")
def sends_too_much(s):
    return asks(s, "transfer", "-", "0", "900000000", "", uid=SOMEBODY)


@attempt("hostile user", "sends money to himself", "invalid")
def sends_himself(s):
    s.market.tool("marketctl", "deposit", SOMEBODY, "1")
    return asks(s, "transfer", "-", str(SOMEBODY), "1", "", uid=SOMEBODY)


@attempt("hostile user", "writes a second line into the books with a note", "a line of 11 signs")
def forges_a_line(s):
    """The market replaces every sign that ends a line when a note comes in, so a note stays one
    line."""
    s.market.tool("marketctl", "deposit", SOMEBODY, "1")
    words = request(SOMEBODY, "transfer", "-", "0", "0.1", "x\n1\tdeposit")
    assert told(s, words).get(2) == 1
    note = s.market.ctl("marketctl", "statement", SOMEBODY, "--limit", "1")[0]["note"]
    assert note.isprintable(), note
    s.market.tool("marketctl", "ledger", "verify")
    return f"a line of {len(note)} signs"


@attempt("hostile user", "spends the same money in eight programs at once", "1 of 8")
def spends_twice(s):
    for who in (SOMEBODY, "0"):
        s.market.tool("marketctl", "deposit", who, "1000")
    has, root_has = balance(s, SOMEBODY), balance(s, "0")
    part = int(has * 0.6)
    tool = s.place + "/marketctl"
    s.somebody("marketctl", "status", check=True)  # it is where he can run it
    all_at_once = [subprocess.Popen([tool, "transfer", "0", str(part)], stderr=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, env={**s.market.env, "HOME": "/"},
                                    cwd="/", user=SOMEBODY, group=SOMEBODY, extra_groups=[])
                   for _ in range(8)]
    done = [p.wait(60) for p in all_at_once].count(0)
    assert abs(has - balance(s, SOMEBODY) - part) < 1e-6
    assert abs(balance(s, "0") - root_has - part) < 1e-6
    s.market.tool("marketctl", "ledger", "verify")
    return f"{done} of 8"


# ---- a job

@attempt("job", "sends its user's money away", "no such file")
def job_sends(s):
    return s.in_a_job("import socket\n"
                      f"try: socket.socket(socket.AF_UNIX).connect("
                      f"'{s.market.daemon('market')['socket']}')\n"
                      "except OSError as e: print(e.strerror)").lower()


# ---- a hostile node

@attempt("hostile node", "sends away the money of a user for whom it may not speak",
         "not_allowed")
def node_sends(s):
    s.market.tool("marketctl", "deposit", SOMEBODY, "1000")
    try:
        return node_asks(s, SOMEBODY, "transfer", str(SOMEBODY), "9001", "900", "")
    finally:
        assert balance(s, SOMEBODY) > 900


@attempt("hostile node", "deposits money in the name of root", "not_allowed")
def node_deposits(s):
    return node_asks(s, 0, "deposit", "9001", "1000", "")


@attempt("hostile node", "gives its user an allowance in the name of root", "not_allowed")
def node_allows(s):
    return node_asks(s, 0, "user-limit", "9001", "allowance=1000", "every=day")


@attempt("hostile node", "pays out what another node has earned", "not_allowed")
def node_pays_out(s):
    return node_asks(s, 9001, "payout", "n1", "all", "9001", "")


@attempt("hostile node", "gives money away a millionth at a time, to ever more users", "too_many")
def node_gives_crumbs(s):
    """Each gift is a receipt that is kept for good, and an account."""
    s.market.tool("marketctl", "deposit", "9002", "5")

    def talk():
        with s.as_node("market", "ranged", identity=s.ranged) as line:
            for n in range(1200):
                line.say(c.CTL_REQUEST, request(9002, "transfer", "-", str(700000 + n), "0.000001",
                                                ""))
                kind, body = line.hear()
                while kind != c.CTL_REPLY:
                    kind, body = line.hear()
                if not c.parse(body).get(2):
                    return n, refusal(c.parse(body))
        return n, "none"
    n, got = s.inside(talk)
    assert n == 1000, n
    return got
