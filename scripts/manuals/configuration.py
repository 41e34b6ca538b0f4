# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/configuration.md and the sample files, from what the daemons say of their settings."""
import re
import textwrap

import source

HEAD = """# Configuration

*Made from the daemons' own tables by `make configuration-reference`; a test compares.*

`agentd` reads `/etc/souk/agentd.conf`, `marketd` reads `/etc/souk/marketd.conf` (or `--config
FILE`), in TOML. `--check-config` says what is wrong with a file, or prints every key as it is in
force and where it comes from. In brackets is what a key takes, its default, and an example. Times
and sizes are whole numbers in the unit that is named, or texts with a unit of their own: `"90s"`,
`"30m"`, `"1.5h"`, `"2d"`, `"512M"`, `"4G"`. `systemctl reload` (SIGHUP) has a daemon read its file
again; the log says which keys count from now on and which from the next start.
"""


def default_of(setting):
    default = setting["default"]
    if default in ("", '""', "[]"):
        return "none"
    return default if setting["computed"] else f"`{default}`"


def kind_of(setting):
    """Says in few words what a key takes. HEAD says how times and sizes are written."""
    takes = re.sub(r': a whole number, or a text such as "\w+"', "", setting["takes"])
    takes = re.sub(r"^(a whole|an|a) ", "", takes).replace("one of: ", "")
    return re.sub(r"^(time|size)", rf"\1 in {setting['unit']}", takes) if setting["unit"] else takes


def reference(directory):
    parts = [HEAD]
    for daemon in source.DAEMONS:
        parts.append(f"## {daemon}.conf\n")
        for s in source.settings(directory, daemon):
            example = "" if s["example"] == s["default"] else f"; `{s['example']}`"
            text = (f"- **`{s['name']}`** ({kind_of(s)}; default {default_of(s)}{example}): "
                    f"{s['about']}")
            parts.append(textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False,
                                       break_on_hyphens=False))
        parts[-1] += "\n"
    return "\n".join(parts)


def sample(directory, daemon):
    lines = [f"# {daemon}.conf: every key, as an example. {daemon}.conf(5) says more;",
             f"# {daemon} --check-config shows what is in force."]
    for s in source.settings(directory, daemon):
        lines += ["", *(f"# {line}" for line in textwrap.wrap(s["about"], 96)),
                  f"# Default: {default_of(s).replace('`', '')}"]
        needed = daemon == "agentd" and s["name"] == "market"
        lines.append(("" if needed else "#") + f"{s['name']} = {s['example']}")
    return "\n".join(lines) + "\n"


def write(directory, out):
    out.mkdir(parents=True, exist_ok=True)
    for daemon in source.DAEMONS:
        (out / f"{daemon}.conf").write_text(sample(directory, daemon))
