# SPDX-License-Identifier: GPL-2.0-or-later
"""marketctl: what orders ask for, and how they wait for what becomes of them."""
import contextlib
import json
import os
import re
import select

import pytest

from fake import LIMIT, answer


@pytest.mark.parametrize("args, asked", [
    (["user", "show"], ["user-show", "-"]), (["user", "show", "me"], ["user-show", "me"]),
    (["user", "limit", "me", "--jobs", "2"], ["user-limit", "me", "jobs=2"]),
    (["user", "limit", "7", "--cpus", "none", "--spend-per-day", "1.5"],
     ["user-limit", "7", "spend-per-day=1.5", "cpus=none"]),
    (["user", "unlimit", "me"],
     ["user-limit", "me", "spend-per-day=none", "jobs=none", "cpus=none", "reserve=none",
      "hours=none", "credit=none", "allowance=none"]),
    (["user", "limit", "me", "--allowance", "3", "--every", "week", "--expires"],
     ["user-limit", "me", "allowance=3", "every=week", "expires=yes"])])
def test_marketctl_user_asks_for_limits_and_shows_them(start, agentd, args, asked):
    process = start("marketctl", *args)
    shown = {"user": "me", "uid": 7, "jobs": 2, "spent_today": 1.5, "running_jobs": 1,
             "running_cpus": 1, "held_jobs": 3}
    assert answer(agentd, process, [shown] if args[1] == "show" else shown) == asked
    out = process.communicate(timeout=LIMIT)[0].decode()
    assert process.returncode == 0
    assert out == ("" if args[1] != "show" else
                   "User  UID  Spend/day  Today  Jobs  Run  CPUs  In use  Held  Hours  Credit  "
                   "Allowance  Left\n"
                   "me      7       none    1.5     2    1  none       1     3  none     none  "
                   "none       none\n")


@pytest.mark.parametrize("args, asked", [
    (["project", "add", "physics"], ["project", "add", "physics", "-"]),
    (["project", "add", "physics", "ann"], ["project", "add", "physics", "ann"]),
    (["project", "remove", "physics", "ann"], ["project", "remove", "physics", "ann"])])
def test_marketctl_project_says_who_is_of_it(start, agentd, args, asked):
    process = start("marketctl", *args)
    assert answer(agentd, process, {"user": "physics", "members": ["ann"]}) == asked
    assert process.communicate(timeout=LIMIT) == (b"", b"") and process.returncode == 0


@pytest.mark.parametrize("args, words", [
    (["project"], "show, add or remove"), (["project", "add"], "a project is missing"),
    (["project", "remove", "physics"], "a user is missing"),
    (["project", "show", "physics", "x"], "unexpected argument 'x'")])
def test_marketctl_project_says_what_is_missing(start, args, words):
    process = start("marketctl", *args)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2 and words in err.decode() and not out


def test_a_token_for_souk_web_is_printed_alone(start, agentd):
    process = start("marketctl", "web-token")
    assert answer(agentd, process, {"token": "3f0c", "uid": 7, "lives_s": 120}) == ["web-token"]
    assert process.communicate(timeout=LIMIT) == (b"3f0c\n", b"")


@pytest.mark.parametrize("args, asked", [
    (["move", "n1.1", "n2"], ["move", "n1.1", "n2", "once"]),
    (["move", "--hold", "n1.1", "n2"], ["move", "n1.1", "n2", "hold"]),
    (["freeze", "n1.1"], ["freeze", "n1.1", "once"]),
    (["freeze", "n1.1", "--hold"], ["freeze", "n1.1", "hold"]),
    (["thaw", "n1.1"], ["thaw", "n1.1", "-", "once"]),
    (["thaw", "n1.1", "n3", "--hold"], ["thaw", "n1.1", "n3", "hold"]),
    (["node", "lost", "n2"], ["node", "lost", "n2"]),
    (["node", "forget", "n2"], ["node-forget", "n2"])])
def test_marketctl_orders(start, agentd, args, asked):
    orders = {"move", "freeze", "thaw"} & set(args)
    process = start("marketctl", *args, *(["--no-wait"] if orders else []))
    assert answer(agentd, process, {"id": "n1.1"}) == asked
    assert process.communicate(timeout=LIMIT) == (b"", b"") and process.returncode == 0


@pytest.mark.parametrize("args, what, became, shown", [
    (["move", "n1.1", "n2"], ["n1.1", "n2", "run", "3", "2", "60000"],
     {"done": True, "message": "job n1.1 runs on n2", "pause_ms": 12.34, "total_ms": 250,
      "bytes": 4_200_000}, "job n1.1 runs on n2: it stood still for 12.3 ms of 250.0 ms, 4.2 MB\n"),
    (["freeze", "--hold", "n1.1", "--wait", "5m"], ["n1.1", "-", "freeze", "3", "5", "300000"],
     {"done": True, "message": "job n1.1 is frozen on n1", "bytes": 999},
     "job n1.1 is frozen on n1: 999 bytes\n"),
    (["thaw", "n1.1"], ["n1.1", "-", "run", "3", "2", "60000"],
     {"id": "n1.1", "done": False, "message": "the thaw on n2 failed: its image is damaged"},
     None)])
def test_an_order_waits_for_what_becomes_of_it_and_says_so(start, agentd, args, what, became,
                                                           shown):
    process = start("marketctl", *args)
    connection = agentd.accept()
    connection.welcome()
    request = connection.expect("ctl_request")
    assert request[3] == [[w for w in args if w in ("move", "freeze", "thaw")][0].encode()]
    before = {"id": "n1.1", "failures": 3, "migrations": 2, "freezes": 5}
    connection.send("ctl_reply", {1: request[1][0], 2: True, 4: json.dumps(before)})
    connection = agentd.accept()
    connection.welcome()
    for after in ("", "77"):
        request = connection.expect("ctl_request")
        assert request[3] == [b"await"] and [a.decode() for a in request[4]] == what
        assert request.get(5, [b""]) == [after.encode()]
        more = {5: "77"} if not after else {4: json.dumps(became)}
        connection.send("ctl_reply", {1: request[1][0], 2: True, **more})
    out, err = process.communicate(timeout=LIMIT)
    if shown:
        assert (process.returncode, out.decode(), err) == (0, shown, b"")
    else:
        assert (process.returncode, out) == (1, b"")
        assert err == b"marketctl: job n1.1: the thaw on n2 failed: its image is damaged\n"


def read_to_end(terminal):
    """Reads all that was written to the terminal. It comes in pieces, even after the other end was
    closed."""
    said = b""
    with contextlib.suppress(OSError):  # EIO: that was all
        while piece := os.read(terminal, 4096):
            said += piece
    return said


@pytest.mark.parametrize("sending, far", [
    (None, " of about 24.0s"),
    ({"sent_bytes": 640_000_000, "sending_bytes": 1_200_000_000, "sent_bytes_per_s": 55_000_000},
     ", 640.0 MB of 1.2 GB, 55.0 MB/s")])
def test_a_long_order_shows_how_far_it_is_on_a_terminal(start, agentd, sending, far):
    ours, theirs = os.openpty()
    process = start("marketctl", "move", "n1.1", "n2", stderr=theirs)
    os.close(theirs)

    def reply(connection, number, **more):
        connection.send("ctl_reply", {1: number, 2: True, **{int(k[1:]): v
                                                             for k, v in more.items()}})

    def asked():
        connection = agentd.accept()
        connection.welcome()
        request = connection.expect("ctl_request")
        return connection, request

    connection, request = asked()
    reply(connection, request[1][0], f4=json.dumps({"id": "n1.1"}))
    waits, request = asked()
    assert request[3] == [b"await"]
    reply(waits, request[1][0], f5="7")
    # srun looks how far the job is before it asks once more, and each second while it waits.
    heard = [agentd.sock, waits.sock, process.stdout]
    while process.stdout not in (ready := select.select(heard, [], [], LIMIT)[0]):
        if agentd.sock in ready:
            connection, request = asked()
            assert (request[3], request[4]) == ([b"job"], [b"n1.1"])
            reply(connection, request[1][0], f4=json.dumps(
                {"id": "n1.1", "status": "moving", "going_to": "n2", "forecast_total_ms": 24_000,
                 **(sending or {})}))
        else:
            request = waits.expect("ctl_request")
            assert request[5] == [b"7"]
            reply(waits, request[1][0], f4=json.dumps({"done": True,
                                                       "message": "job n1.1 runs on n2"}))
            heard.remove(waits.sock)
    assert process.communicate(timeout=LIMIT)[0] == b"job n1.1 runs on n2\n"
    said = read_to_end(ours).decode()
    os.close(ours)
    assert re.fullmatch(r"(\r\x1b\[Kjob n1\.1: moving to n2, [\d.]+m?s" + far + r")+\r\x1b\[K",
                        said), said


@pytest.mark.parametrize("args, asked", [
    (["--all"], ["all"]), (["--name", "night run"], ["name=night run"]),
    (["--name", "a", "--user", "ann"], ["name=a", "user=ann"])])
def test_several_jobs_are_cancelled_by_name_user_or_all(start, agentd, args, asked):
    process = start("marketctl", "cancel", *args)
    cancelled = {"count": 2, "cancelled": ["n1.1", "n1.2"]}
    assert answer(agentd, process, cancelled) == ["cancel", *asked]
    assert process.communicate(timeout=LIMIT)[0] == b"2 jobs are being cancelled\n"
