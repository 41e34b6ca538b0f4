# SPDX-License-Identifier: GPL-2.0-or-later
"""All that is tried against a market of real daemons: by a stranger, by users and jobs, by a
hostile node. Each attempt says what it tries and the words that it is refused with. It returns
what it got; it must contain these words. What an attacker would have gained is looked for by the
attempt itself (assert)."""
import by_stranger
import by_user
import by_node
import by_page
import by_money
from stage import ATTEMPTS, Stage, begun, ended

__all__ = ["ATTEMPTS", "Stage", "begun", "ended", "by_stranger", "by_user", "by_node", "by_page",
           "by_money"]
