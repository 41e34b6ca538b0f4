# SPDX-License-Identifier: GPL-2.0-or-later
"""The best assignment of jobs to classes of places, by dynamic programming."""


def assign(values, classes):
    """The greatest sum of value x speed - cost over all assignments of falling values to places,
    and the cuts of the greatest such assignment: how many have this class or a faster one. The
    greater value has the greater speed, so that a count for each class says all; F[n] is the best
    with n jobs in the classes so far."""
    if not classes:
        return 0, []
    sums = [0]
    for value in values:
        sums.append(sums[-1] + value)
    layers, best = [], [0]
    for speed, cost, slots in classes:
        total = min(len(values), len(best) - 1 + slots)
        layer = [None] * (total + 1)
        for before, welfare in enumerate(best):
            for n in range(before, min(total, before + slots) + 1):
                w = welfare + speed * (sums[n] - sums[before]) - cost * (n - before)
                if layer[n] is None or w > layer[n]:
                    layer[n] = w
        layers.append(best)
        best = layer
    greatest = max(best)
    n = max(i for i, w in enumerate(best) if w == greatest)
    cuts, welfare = [], greatest
    for (speed, cost, slots), before in zip(reversed(classes), reversed(layers)):
        cuts.append(n)
        for m in range(min(n, len(before) - 1), max(-1, n - slots - 1), -1):
            if before[m] + speed * (sums[n] - sums[m]) - cost * (n - m) == welfare:
                n, welfare = m, before[m]
                break
    return greatest, cuts[::-1]
