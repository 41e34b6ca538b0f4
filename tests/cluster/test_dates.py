# SPDX-License-Identifier: GPL-2.0-or-later
"""Certificates out of their time, with real daemons: one line says whose, since when and what to
do, at both ends; the doctor says it too; and the node comes back with a good one. OpenSSL's own
`ca` makes the certificates, as its dates can be any."""
import os
import re
import shutil
import subprocess
import time

import pytest

from conftest import read_text, until

CONF = """[ca]
default_ca = one
[one]
database = {0}/index.txt
serial = {0}/serial
new_certs_dir = {0}
default_md = sha256
policy = any
[any]
commonName = supplied
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = URI:souk:node/n2,URI:souk:role/home,URI:souk:role/provider
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
"""


def dated(market, tmp_path, begins, ends):
    """A certificate of n2's own key, by the market's authority, between these (Unix time)."""
    work = f"{tmp_path}/ca"
    shutil.rmtree(work, ignore_errors=True)
    os.mkdir(work)
    for name, text in (("index.txt", ""), ("serial", "5eed01"), ("conf", CONF.format(work))):
        with open(f"{work}/{name}", "w") as f:
            f.write(text)
    own, authority = (f"{market.run_dir}/state/{d}/identity" for d in ("n2", "market"))

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=30)

    def text(at):
        return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(at))
    openssl("req", "-new", "-key", f"{own}/key.pem", "-subj", "/CN=n2", "-out", f"{work}/csr")
    openssl("ca", "-batch", "-notext", "-config", f"{work}/conf", "-extensions", "leaf",
            "-startdate", text(begins), "-enddate", text(ends), "-cert",
            f"{authority}/issuing.pem", "-keyfile", f"{authority}/issuing.key", "-in",
            f"{work}/csr", "-out", f"{work}/leaf.pem")
    return read_text(f"{work}/leaf.pem") + read_text(f"{authority}/issuing.pem")


def restart(market, node):
    pid = until(f"{node} is there", lambda: market.daemon(node)["pid"])
    os.kill(pid, 9)
    until(f"{node} is started again", lambda: market.daemon(node)["pid"] not in (0, pid))


def connected(market, node):
    return next(p for p in market.providers() if p["node"] == node)["connected"]


@pytest.mark.parametrize("begins, ends, says, doctor", [
    (-8 * 86_400, -3_600, r"the certificate of n2 ended .* 1h .*ago", "ended "),
    (3_600, 8 * 86_400, r"the certificate of n2 begins .*one of the two clocks is wrong",
     "clock or the market's is wrong")])
def test_a_certificate_out_of_its_time_is_named_and_a_good_one_brings_the_node_back(
        market, tmp_path, begins, ends, says, doctor):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl(1)")
    path = f"{market.run_dir}/state/n2/identity/certificate.pem"
    before = read_text(path)
    log = f"{market.run_dir}/market/log"
    old = len(read_text(log))
    now = int(time.time())
    try:
        with open(path, "w") as f:
            f.write(dated(market, tmp_path, now + begins, now + ends))
        restart(market, "n2")
        until("the market says whose and why", lambda: re.search(says, read_text(log)[old:]))
        assert not connected(market, "n2")
        told = market.doctor("n2", "--agentd", f"{market.run_dir}/n2/agentd.conf", "--marketd",
                             "/nonexistent")
        assert doctor in told and "souk node renew" in told, told
        # Nobody else notices.
        assert market.tool("srun", "--node", "n1", "-p", 5, "true").returncode == 0
    finally:
        with open(path, "w") as f:
            f.write(before)
        restart(market, "n2")
    until("n2 is back", lambda: connected(market, "n2"))
