# SPDX-License-Identifier: GPL-2.0-or-later
"""How a runner of others' suites ends."""
import shutil


def is_left(market, top, was_up=True):
    """Takes the market down and removes `top`. Says what is left of the market, if anything is."""
    left = market.down() if was_up else []
    shutil.rmtree(top, ignore_errors=True)
    if left:
        print("\n".join(left))
    return bool(left)
