# SPDX-License-Identifier: GPL-2.0-or-later
"""As whom souk-root starts processes for an agentd that was taken over: whom the kernel vouches for
(who has connected to the tools' socket), or the market (its ticket). Who plays that agentd is
root_client.py; tickets are made by client.py, with the market's own key or with another."""
import contextlib
import os
import select
import shutil
import signal
import subprocess

import pytest

import client as c
from authority import Authority
from root_client import (DONE, FILES, STARTED, Root, adopt, capsule, place_of_agentd, program,
                         refused, start_of)

RULES = ("n1", "required", "0", "1000", "*")
SOMEBODY, OTHER = 54321, 54322  # of no account
DAY = 86_400


@contextlib.contextmanager
def agentd_at(place, rules=RULES):
    one = start_of(place, rules)
    try:
        assert one.began[0] == STARTED, one.began
        yield one
    finally:
        one.end()


@pytest.fixture
def place():
    with place_of_agentd() as one:
        yield one


@pytest.fixture
def node(market):
    """The place of a node of that market, and who signs its tickets."""
    with place_of_agentd(f"{market.run_dir}/state/n1/identity") as one:
        yield one, c.Signer(f"{market.run_dir}/state/market/identity/ticket.keys")


def begins(root, place, **how):
    """A capsule is made; and ended."""
    room = os.path.join(place, "state/guests/one")
    os.makedirs(room, 0o700, exist_ok=True)
    os.chown(room, os.stat(f"{place}/state").st_uid, -1)
    directory, kept = os.open(room, os.O_RDONLY), []
    try:
        assert root.ask(capsule(**how), directory, kept=kept) == (STARTED, 2)
        signal.pidfd_send_signal(kept[0], signal.SIGKILL)
        assert select.select([kept[0]], [], [], 20)[0]
    finally:
        for fd in (directory, *kept):
            os.close(fd)


def test_nobody_has_a_job_who_has_not_asked_for_one(place):
    with agentd_at(place) as root, open("/dev/null") as null:
        fd = null.fileno()
        refused(root, "has asked for nothing", capsule(as_=(SOMEBODY, SOMEBODY)), fd)
        for said in (("serve", "/", SOMEBODY, SOMEBODY, "", "/proc"),
                     ("append", SOMEBODY, SOMEBODY, "", 18, "/", "a", ""),
                     ("snapshot", "take", SOMEBODY, SOMEBODY, "", "x", "/")):
            refused(root, "has asked for nothing",
                    program(FILES, *map(str, said), session=True), fd, fd)
        refused(root, "has asked for nothing",
                program(FILES, "client", str(SOMEBODY), str(SOMEBODY)), fd, fd, fd)
        root.comes(SOMEBODY, SOMEBODY, 27, 600)
        begins(root, place, as_=(SOMEBODY, SOMEBODY, 27))
        refused(root, "has asked for nothing", capsule(as_=(OTHER, SOMEBODY)), fd)
        for groups in ((SOMEBODY, 28), (28,), (0,), (SOMEBODY, 27, 0)):
            refused(root, "never seen in group", capsule(as_=(SOMEBODY, *groups)), fd)


def test_agentd_has_no_job_and_no_store_elsewhere(place):
    """It connects to the tools' socket itself; souk-files runs as who owns the store."""
    agent = os.stat("/proc/self").st_uid  # of who plays it
    with agentd_at(place) as root, open("/dev/null") as null:
        me = os.stat(f"{place}/state").st_uid
        assert me != agent
        root.comes(me, me)
        refused(root, "agentd itself has no jobs", capsule(as_=(me, me)), null.fileno())
        refused(root, "has asked for nothing",
                program(FILES, "append", str(me), str(me), "", "18", "/", "a", "", session=True),
                null.fileno(), null.fileno())
        for path in (f"{place}/state-root", "/root", "/tmp"):
            store = os.open(path, os.O_PATH)
            refused(root, "is not agentd's alone", program(FILES, "store", "1"), store,
                    null.fileno())
            os.close(store)
        assert os.path.exists(f"{place}/state-root")


def test_root_has_no_job_whoever_has_connected(place):
    with agentd_at(place) as root, open("/dev/null") as null:
        root.comes(0, 0)
        refused(root, "root has no jobs", capsule(as_=(0, 0)), null.fileno())
        for said in (("serve", "/", "0", "0", "", "/proc"),
                     ("append", "0", "0", "", "18", "/", "a", "")):
            refused(root, "root has no jobs", program(FILES, *said, session=True), null.fileno(),
                    null.fileno())
    for rules in ((*RULES[:2], "1", *RULES[3:]), (*RULES[:3], "0", *RULES[4:])):
        with agentd_at(place, rules) as root:  # its owner lets it
            begins(root, place, as_=(0, 0))


def test_who_has_connected_is_known_after_a_restart_and_agentd_cannot_change_it(place):
    with agentd_at(place) as root:
        assert root.ask(adopt((4711, 4711))) == (DONE, 0)  # of a version before, at its first start
        root.comes(SOMEBODY, SOMEBODY)
    kept = f"{place}/state-root"
    assert (os.stat(kept).st_uid, os.stat(kept).st_mode & 0o7777) == (0, 0o700)
    with agentd_at(place) as root, open("/dev/null") as null:
        begins(root, place, as_=(SOMEBODY, SOMEBODY))
        begins(root, place, as_=(4711, 4711))
        assert root.ask(adopt((OTHER, OTHER))) == (DONE, 0)  # and does nothing
        refused(root, "has asked for nothing", capsule(as_=(OTHER, OTHER)), null.fileno())


def test_a_directory_of_somebody_elses_is_not_believed(place):
    os.mkdir(f"{place}/state-root", 0o700)
    os.chown(f"{place}/state-root", 4321, 4321)
    one = start_of(place, RULES)
    assert "is not root's directory" in one.began[1]
    one.line.close()
    assert one.process.wait(20) == 1


def test_a_job_of_another_home_comes_with_the_markets_ticket_alone(node):
    place, signer = node
    with agentd_at(place) as root, open("/dev/null") as null:
        fd = null.fileno()

        def ticket(uid=SOMEBODY, by=signer, **how):
            return by.ticket("n2", 5, **{"destination": "n1", "user": "", **how}, uid=uid)

        def comes(why, shown, as_=(SOMEBODY, SOMEBODY)):
            refused(root, why, capsule(as_=as_, own=False, ticket=shown), fd)
        begins(root, place, as_=(SOMEBODY, SOMEBODY), own=False, ticket=ticket())
        comes("", b"")
        comes("no ticket", b"noise")
        comes("does not use", ticket(by=c.Signer()))
        comes("has not signed", c.Signer().ticket("n2", 5, "n1", uid=SOMEBODY, name=signer.name))
        changed = bytearray(ticket())
        changed[-1] ^= 1
        comes("has not signed", bytes(changed))
        comes("is for node n3", ticket(destination="n3"))
        comes("has expired", ticket(age=2 * DAY))
        comes("has run as user", ticket(uid=OTHER))
        for low in (0, 33):
            comes("guest_uid_min", ticket(uid=low), (low, low))
        comes("guest_uid_min", ticket(), (SOMEBODY, 0))
        comes("root's group", ticket(), (SOMEBODY, SOMEBODY, 0))
        # It has come, and has asked for nothing itself.
        refused(root, "has asked for nothing", capsule(as_=(SOMEBODY, SOMEBODY)), fd)


def test_what_lies_in_agentds_own_files_makes_no_other_market(node, tmp_path):
    place, _ = node
    evil = c.Signer()
    with agentd_at(place) as root, open("/dev/null") as null:
        forged = capsule(as_=(SOMEBODY, SOMEBODY), own=False,
                         ticket=evil.ticket("n2", 5, "n1", uid=SOMEBODY))
        for list_ in (f"souk ticket list 1\nnumber 9\n{evil.public_line()}signature 00\n",
                      evil.public_line(), ""):
            with open(f"{place}/state/identity/ticket-list", "w") as f:
                f.write(list_)
            refused(root, "the market's ticket keys", forged, null.fileno())
        os.unlink(f"{place}/state/identity/ticket-list")
        os.symlink("/etc/shadow", f"{place}/state/identity/ticket-list")
        refused(root, "the market's ticket keys", forged, null.fileno())
    # A whole market of his own, with a root of its own: agentd begins with it, and does not.
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "9",
                    "-subj", "/CN=uni", "-keyout", tmp_path / "key", "-out", tmp_path / "root.pem"],
                   check=True, capture_output=True)
    shutil.copy(tmp_path / "root.pem", f"{place}/state/identity/root.pem")
    one = start_of(place, RULES)
    assert "was of another market until now" in one.began[1]
    one.line.close()
    assert one.process.wait(20) == 1


def test_an_older_list_of_ticket_keys_is_not_believed_again(node, market):
    """Somebody has a key that the market has ended, and the list from when it signed."""
    place, signer = node
    issuing = Authority(f"{market.run_dir}/state/market/identity")
    laid, newer = f"{place}/state/identity/ticket-list", c.Signer()
    with open(laid, "rb") as f:
        first = f.read()
    number = int(first.split()[5])

    def lay(text):
        with open(laid, "wb") as f:
            f.write(text)

    def shows(by):
        return {"as_": (SOMEBODY, SOMEBODY), "own": False,
                "ticket": by.ticket("n2", 5, "n1", uid=SOMEBODY, user="")}
    with agentd_at(place) as root, open("/dev/null") as null:
        begins(root, place, **shows(signer))
        second = issuing.ticket_list(newer.public_line(), number + 1)
        lay(second)
        begins(root, place, **shows(newer))
        refused(root, "does not use", capsule(**shows(signer)), null.fileno())
        lay(first)
        refused(root, f"is older than one that was believed here ({number + 1})",
                capsule(**shows(signer)), null.fileno())
        lay(issuing.ticket_list(signer.public_line(), number + 1))
        refused(root, "another list with the number", capsule(**shows(signer)), null.fileno())
    kept = f"{place}/state-root/ticket-list.seen"
    assert (os.stat(kept).st_uid, os.stat(kept).st_mode & 0o7777) == (0, 0o600)
    lay(first)
    with agentd_at(place) as root, open("/dev/null") as null:  # begun anew
        refused(root, "is older than one", capsule(**shows(signer)), null.fileno())
        os.unlink(laid)
        refused(root, "the market's ticket keys", capsule(**shows(signer)), null.fileno())
        lay(second)
        begins(root, place, **shows(newer))
    # Its owner has the node join the market once more (souk setup node).
    lay(first)
    os.unlink(f"{place}/state-root/market.pem")
    with agentd_at(place) as root:
        begins(root, place, **shows(signer))


def test_without_certificates_agentds_word_counts():
    one = Root()
    assert one.began[0] == STARTED
    one.end()
    with place_of_agentd() as place, agentd_at(place, ("n1", "any", "0", "1000", "*")) as root:
        begins(root, place, as_=(SOMEBODY, SOMEBODY))
