# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine under QEMU in software emulation: its command, its initramfs, and its clock."""
import ctypes
import mmap
import os
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def tsc_khz():
    """The host's time stamp counter, which the emulator hands on; a guest that measures it itself
    on a busy host errs."""
    # rdtsc; shl rdx, 32; or rax, rdx; ret
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("0f3148c1e2204809d0c3"))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
    found = []
    for _ in range(5):
        began, first = time.perf_counter_ns(), read()
        time.sleep(0.05)
        ended, last = time.perf_counter_ns(), read()
        found.append((last - first) * 1_000_000 // (ended - began))
    return sorted(found)[2]


def initramfs(kernel, to, files):
    """The modules of this kernel (a directory of the cache) with a second archive behind them:
    /init, and `files`: name to content."""
    with tempfile.TemporaryDirectory(prefix="souk-vm.") as d:
        with open(f"{HERE}/init", "rb") as f:
            files = {"init": f.read(), **files}
        for name, content in files.items():
            with open(f"{d}/{name}", "wb") as out:
                out.write(content)
        os.chmod(f"{d}/init", 0o755)
        packed = subprocess.run("find . | cpio -o -H newc --quiet | gzip -1", shell=True, cwd=d,
                                stdout=subprocess.PIPE, check=True).stdout
    with open(f"{kernel}/initrd.gz", "rb") as f:
        to.write(f.read() + packed)
    to.flush()


def start(kernel, initrd, cpus, memory_mb, append, *more, **popen):
    """The emulator, which dies with this process, even if that is killed."""
    words = ("console=ttyS0 quiet oops=panic panic=-1 mitigations=off nokaslr nowatchdog "
             f"tsc_early_khz={tsc_khz()} tsc=reliable systemd.show_status=false "
             "systemd.log_level=warning systemd.unified_cgroup_hierarchy=1 "
             "systemd.journald.forward_to_console=no " + append)
    argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-M", "q35",
            "-smp", str(cpus), "-m", str(memory_mb), "-nodefaults", "-no-reboot", "-nographic",
            "-serial", "stdio", "-device", "virtio-rng-pci", "-kernel", f"{kernel}/vmlinuz",
            "-initrd", initrd, *more, "-append", words]
    die_too = lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                            preexec_fn=die_too, **popen)
