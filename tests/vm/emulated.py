# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines as those of tests/fresh, but each with a stock Debian kernel of its own, under QEMU in
software emulation: a network card on one switch, systemd as PID 1. The host runs words there over a
virtio port (tests/vm/hand)."""
import json
import os
import re
import shutil
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [f"{HERE}/../../scripts/vm", f"{HERE}/../fresh"]
import emulator  # noqa: E402
import machines  # noqa: E402

MEMORY_MB, DISK = 1024, "3G"
UNIT = """[Unit]
Description=What the host asks for
Before=network.target
Wants=network.target
[Service]
ExecStartPre=/usr/sbin/ip address add {address}/24 dev eth0
ExecStartPre=/usr/sbin/ip link set eth0 up
ExecStart={hand}
Environment={environment}
KillMode=process
[Install]
WantedBy=multi-user.target
"""


class Switch:
    """Each network card is a datagram socket, each datagram a frame. Those of a card that takes no
    more for a while are dropped, as a wire does."""

    def __init__(self, place):
        self.place, self.tag = place, "souk"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.thread = threading.Thread(target=self.carry)

    def up(self):
        self.socket.bind(f"{self.place}/switch")
        self.socket.settimeout(0.2)
        self.thread.start()

    def carry(self):
        cards, homes = set(), {}  # sockets, and behind which of them an address is
        while True:
            try:
                frame, card = self.socket.recvfrom(1 << 17)
            except TimeoutError:
                continue
            if not frame:
                return
            cards.add(card)
            homes[frame[6:12]] = card
            known = homes.get(frame[:6])
            for other in [known] if known else cards - {card}:
                try:
                    self.socket.sendto(frame, other)
                except OSError:
                    pass  # it is off, or has no room

    def down(self):
        if self.thread.is_alive():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", f"{self.place}/switch")
            self.thread.join()
        self.socket.close()


class Wired(machines.Machine):
    """A machine on the network. Its class says which disks it has, and which words stand on the
    kernel's command line."""
    user, home = "alice", "/home/alice"
    patience, checkpoint_s = 10, 10
    kernel = ""  # a directory of what scripts/vm/fetch made
    cpus, disks, words = 1, (), ""

    def __init__(self, network, place, name, address):
        self.name, self.network, self.pid = name, network, 0
        self.address, self.log = address, f"{place}/{name}.log"
        self.mac = "52:54:00:00:00:%02x" % int(address.split(".")[-1])
        self.nic, self.port = f"{place}/{name}.nic", f"{place}/{name}.port"
        self.initrd, self.link, self.seen = f"{place}/{name}.initrd", None, 0

    def unit(self, hand):
        """The one by which the host runs words."""
        return UNIT.format(address=self.address, hand=hand,
                           environment=" ".join(machines.ENVIRONMENT))

    def make_initrd(self, files):
        with open(self.initrd, "wb") as f:
            emulator.initramfs(self.kernel, f, files)

    def boot(self):
        try:
            self.try_boot()
        except (AssertionError, OSError):
            # The emulator has failed, not the tested program. The failure is reported, and the boot
            # tried once more.
            console = machines.read(self.log)
            if not re.search(r"Kernel panic|Oops:|BUG: ", console[self.seen:]):
                raise
            print(f"{self.name}'s kernel failed, booted once more: {console[-300:]}", flush=True)
            self.power_off()
            self.try_boot()

    def try_boot(self):
        self.seen = len(machines.read(self.log))
        with open(self.log, "ab") as log:
            self.outer = emulator.start(
                self.kernel, self.initrd, self.cpus, MEMORY_MB, f"net.ifnames=0 {self.words}",
                *(word for disk in self.disks for word in ("-drive", disk)),
                "-netdev", f"dgram,id=n,local.type=unix,local.path={self.nic},"
                f"remote.type=unix,remote.path={self.network.place}/switch",
                "-device", f"virtio-net-pci,netdev=n,mac={self.mac},romfile=",
                "-chardev", f"socket,id=c,path={self.port},server=on,wait=off",
                "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=c", stdout=log)
        self.pid = self.outer.pid
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

        def connected():
            if self.outer.poll() is not None:
                raise AssertionError(f"{self.name}: {machines.read(self.log)[-500:]}")
            return self.link.connect_ex(self.port) == 0
        machines.until(f"{self.name} is emulated", connected, machines.START_LIMIT)
        self.wait_up()

    def ran(self, command, limit):
        end = time.monotonic() + limit
        self.link.settimeout(limit)
        self.link.sendall(json.dumps(command).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            self.link.settimeout(max(end - time.monotonic(), 0.001))
            data = self.link.recv(1 << 16)
            if not data:
                raise AssertionError(f"{self.name} has ended: {machines.read(self.log)[-500:]}")
            answer += data
        return json.loads(answer)

    def ended(self):
        self.outer.wait(machines.START_LIMIT * self.patience)
        self.link.close()
        self.pid = 0

    def power_off(self):
        if self.pid:
            self.outer.kill()
            self.ended()

    def shut_down(self):
        self.ran("systemctl --no-block reboot", machines.START_LIMIT)
        self.ended()

    def remove(self):
        self.power_off()


class Emulated(Wired):
    """A machine with a disk that stays, on which packages are installed."""
    words = "disk=1"

    def __init__(self, network, place, name, address, base, repo, newer):
        super().__init__(network, place, name, address)
        self.disk = f"{place}/{name}.disk"
        self.disks = [f"file={self.disk},format=raw,if=virtio,cache=unsafe"]
        root = f"{place}/{name}"
        machines.make_root(root, name, base, repo, newer)
        machines.run("useradd", "-R", root, "-m", "-u", "4321", "-s", "/bin/bash", self.user)
        shutil.copy(f"{HERE}/hand", f"{root}/usr/local/lib/hand")
        wants = f"{root}/etc/systemd/system/multi-user.target.wants"
        os.makedirs(wants, exist_ok=True)
        with open(f"{root}/etc/systemd/system/hand.service", "w", encoding="ascii") as f:
            f.write(self.unit("/usr/local/lib/hand"))
        os.symlink("../hand.service", f"{wants}/hand.service")
        machines.run("mkfs.ext4", "-q", "-d", root, self.disk, DISK)
        machines.run("rm", "-rf", "--one-file-system", root)
        self.make_initrd({})


class Fleeting(Wired):
    """A machine whose root scripts/vm/fetch made, with the files that scripts/vm/payload packed on
    /souk. What it writes is lost at its end, because it stays in memory."""
    words = "systemd.unit=souk-test.service"

    def __init__(self, network, place, name, address, root, payload):
        super().__init__(network, place, name, address)
        self.disks = [f"file={file},format=raw,if=virtio,readonly=on" for file in (root, payload)]
        self.words += f" systemd.hostname={name}"
        self.make_initrd({"souk-test.service": self.unit("/souk/tests/vm/hand").encode(),
                          "test": b""})
