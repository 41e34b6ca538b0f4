# SPDX-License-Identifier: GPL-2.0-or-later
"""A person who types `souk setup`, and answers, has a node of the market in the end."""
import os
import re
import sys

import pytest

from conftest import BIN, read_text

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "tools"))
from person import Person  # noqa: E402


@pytest.mark.parametrize("kind,offered", [("node", ""), ("client", "on_market = false\n"),
                                          ("gateway", "on_market = false\nrelay = true\n")])
def test_a_person_is_asked_what_is_lacking_and_whether_it_may_be_done(market, tmp_path, kind,
                                                                      offered):
    secret = market.tool("souk", "token", "create", "typed-*").stdout.strip()
    config, identity = tmp_path / "agentd.conf", tmp_path / "identity"
    config.write_text("insecure = true\ncpus = 2\n")
    address = market.daemon("market")["address"]

    def setup():
        person = Person("nsenter", f"--net=/run/netns/{market.tag}-fabric", f"{BIN}/souk", "setup",
                        kind, "--market", address, "--identity", str(identity), "--config",
                        str(config), "--no-restart", env=market.env)
        person.sees("The token: ").types(secret)
        person.sees("The name of this node in the market .*: ").types(f"typed-{kind}")
        return person.sees(r"is going to(.|\n)*Go on\? yes or no \[yes\]: ")

    person = setup()
    for line in (f'node = "typed-{kind}"', f'market = "{address}"', "take `insecure` out",
                 'files = "auto"',
                 *offered.splitlines()):
        assert line in person.said, person.said
    person.types("no").sees("nothing is changed")
    assert person.ends() == 1
    assert config.read_text() == "insecure = true\ncpus = 2\n" and not identity.exists()

    person = setup().types("").sees(f"this machine is node typed-{kind} of the market")
    assert person.ends() == 0
    text = re.sub(r"\n+", "\n", read_text(config)).lstrip("\n")
    assert text == (f'cpus = 2\nnode = "typed-{kind}"\nmarket = "{address}"\nfiles = "auto"\n'
                    f"{offered}")
    assert (identity / "certificate.pem").exists()
