# SPDX-License-Identifier: GPL-2.0-or-later
"""python3 scripts/manuals BIN OUT: man pages, completion and sample configuration into OUT/man,
OUT/completion and OUT/conf, from what the programs in BIN say of themselves.
python3 scripts/manuals BIN --reference: docs/configuration.md on stdout."""
import os
import pathlib
import sys

import completion
import configuration
import pages


def main(directory, out):
    directory = os.path.abspath(directory)
    if out == "--reference":
        sys.stdout.write(configuration.reference(directory))
        return
    out = pathlib.Path(out)
    pages.write(directory, out / "man")
    configuration.write(directory, out / "conf")
    completion.write(directory, out / "completion/bash", out / "completion/zsh")


main(*sys.argv[1:])
