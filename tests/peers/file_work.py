# SPDX-License-Identifier: GPL-2.0-or-later
"""Ordinary work with files, as suites of files.py: a repository of git that is made, cloned and
checked; a tarball of 20,000 small files that is unpacked and compared; a real program (Lua, from
Debian's source) that is built with `make -j4`. Each byte must come out as it does without a job."""
import hashlib
import io
import os
import random
import subprocess
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL_FILES = 20_000

GIT = """
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=$PWD
git init -q source
cd source
i=0
while [ $i -lt COMMITS ]; do
    i=$((i + 1))
    mkdir -p d$((i % 10))
    seq 1 $((i * 7 % 997)) > d$((i % 10))/f$i
    echo $i >> log
    git add -A
    git -c user.name=a -c user.email=a@b commit -q -m "commit $i"
done
cd ..
git clone -q --no-local source clone
git -C clone fsck --full --strict
[ "$(git -C clone rev-list --count HEAD)" = COMMITS ]
git -C clone gc -q
git -C clone fsck --full --strict
diff -r --exclude .git source clone
"""

UNTAR = """
set -e
tar -xf TARBALL
tar -df TARBALL
[ "$(find small -type f | wc -l)" = COUNT ]
"""

BUILD = """
set -e
tar -xf SOURCE --strip-components=1
make -j4 linux > said 2>&1 || { tail said; exit 1; }
[ "$(src/lua -e 'print(6 * 7)')" = 42 ]
"""
BUILT = ("src/lua", "src/luac", "src/liblua.a")


def small_files(path):
    """The same in each run: names, sizes and contents are drawn by one seed."""
    seeded = random.Random(20)
    with tarfile.open(path, "w") as tar:
        for i in range(SMALL_FILES):
            data = seeded.randbytes(seeded.randrange(4096))
            one = tarfile.TarInfo(f"small/{i % 100}/{i}")
            one.size, one.mode, one.mtime = len(data), 0o644, 1_000_000_000 + i
            tar.addfile(one, io.BytesIO(data))


def checked_build(source, top):
    """The words that build it, and compare with what they make here, without a job."""
    where = os.path.join(top, "reference")
    os.mkdir(where)
    build = BUILD.replace("SOURCE", source)
    subprocess.run(["/bin/sh", "-c", build], cwd=where, check=True, stdout=subprocess.DEVNULL)
    sums = []
    for name in BUILT:
        with open(os.path.join(where, name), "rb") as f:
            sums.append(f"{hashlib.sha256(f.read()).hexdigest()}  {name}")
    return build + "\nsha256sum -c - << END\n" + "\n".join(sums) + "\nEND\n"


def work(seconds, wanted, top):
    """(name, command) of each that is wanted; `top`: where what they read is made."""
    if "git" in wanted:
        yield "git", GIT.replace("COMMITS", str(5 * seconds))
    if "untar" in wanted:
        tarball = os.path.join(top, "small.tar")
        small_files(tarball)
        yield "untar", UNTAR.replace("TARBALL", tarball).replace("COUNT", str(SMALL_FILES))
    if "build" in wanted:
        source = subprocess.run([os.path.join(HERE, "../../scripts/deb-source"), "lua5.4"],
                                check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        copy = os.path.join(top, "source.tar.gz")  # where the job's home has its files
        with open(source, "rb") as f, open(copy, "wb") as out:
            out.write(f.read())
        yield "build", checked_build(copy, top)
