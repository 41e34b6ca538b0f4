# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a program refuses: its code (docs/reasons.md), which stays when the words for it change."""
import json
import pathlib
import re

# Makes a program say its errors as refused() reads them: for its environment.
IN_JSON = {"SOUK_ERRORS": "json"}
_ENUM = re.search(r"enum class CauseCode[^{]*{(.*?)};",
                  (pathlib.Path(__file__).parents[1] / "kernel/base/cause.hpp").read_text(), re.S)
CAUSES = re.findall(r"^    (\w+)", _ENUM[1], re.M)  # a code's number in messages is its place


def refused(done, code, status=1):
    """The program has ended with that status and that code, in one line and without any data. Its
    words are given back."""
    text = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
    assert done.returncode == status and not done.stdout, done
    assert text.count("\n") == 1 and text.startswith('{"error":'), done
    error = json.loads(text)["error"]
    assert error["code"] == code, done
    return error["message"]
