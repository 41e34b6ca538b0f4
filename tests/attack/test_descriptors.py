# SPDX-License-Identifier: GPL-2.0-or-later
"""A local user passes a daemon the last descriptor of something whose close waits as long as he
likes: who closes it stands still."""
import socket
import subprocess

import pytest

from attack_place import SOMEBODY

SO_PASSRIGHTS = 83  # asm-generic/socket.h, from Linux 6.16 on
LIMIT = 20

# A connection with bytes that its other end does not read, and which waits for an hour as it is
# closed, goes to the socket of argv[1]. Then nobody but who listens there has it.
PASS = """
import socket, struct, sys
listening = socket.create_server(("127.0.0.1", 0))
lingers = socket.create_connection(listening.getsockname())
lingers.setblocking(False)
try:
    while True:
        lingers.send(bytes(1 << 16))
except BlockingIOError:
    pass
lingers.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
to = socket.socket(socket.AF_UNIX)
to.connect(sys.argv[1])
try:
    socket.send_fds(to, [b"x"], [lingers.fileno()])
except PermissionError as e:
    lingers.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    print(e.strerror, flush=True)
else:
    print("it was passed", flush=True)
lingers.close()
sys.stdin.read()
"""


@pytest.mark.parametrize("daemon, asks", [
    ("n1", ("pvdctl", "--node", "n1", "status")), ("market", ("marketctl", "status"))])
def test_no_user_gives_a_daemon_what_takes_long_to_close(market, daemon, asks):
    try:
        socket.socket(socket.AF_UNIX).getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
    except OSError:
        pytest.skip("Linux before 6.16 (docs/security.md, What does not stop an attacker)")
    his = subprocess.Popen(["/usr/bin/python3", "-c", PASS, market.daemon(daemon)["socket"]],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=SOMEBODY,
                           group=SOMEBODY, extra_groups=[])
    try:
        assert his.stdout.readline() == "Operation not permitted\n"
        market.tool(*asks, limit=LIMIT)
    finally:
        his.communicate("", timeout=LIMIT)
