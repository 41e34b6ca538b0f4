# SPDX-License-Identifier: GPL-2.0-or-later
"""Twenty sites of one node each (docs/sites.md): no site knows more than a few, and each hears of
all. When all other markets are gone, one that is left still says what there was."""
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import LIMIT, until
from test_sites import Site, wire

COUNT = 20


def news(site):
    said = json.loads(site.market.tool("marketctl", "--json", "site-news").stdout)
    return {s["site"]: s for s in said}


def each(what, sites):
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(what, sites))


@pytest.fixture(scope="module")
def ring(fit):
    """Each is a peer of two: of the next one, and of one that is far from it."""
    with contextlib.ExitStack() as stack:
        sites = [Site(f"s{i}", i) for i in range(COUNT)]
        for site in sites:
            stack.push(lambda *_, site=site: site.__exit__(None, None, None))
        each(lambda site: site.__enter__(), sites)
        wire(sites)
        each(Site.configure, sites)
        cards = each(Site.card, sites)
        ties = {tuple(sorted((i, (i + step) % COUNT))) for i in range(COUNT)
                for step in ((1, 7) if i % 4 == 0 else (1,))}
        for a, b in ties:
            sites[a].add(cards[b])
            sites[b].add(cards[a])
        yield sites, stack


def test_each_of_twenty_sites_hears_of_all_and_one_alone_still_shows_them(ring):
    sites, stack = ring
    names = {site.name for site in sites}
    for site in sites:
        until(f"{site.name} has heard of all",
              lambda site=site: set(news(site)) == names - {site.name}, LIMIT * 3)
    first = sites[0]
    known = news(first)
    peers = {name for name, one in known.items() if one["peer"]}
    assert len(peers) < 6 and all(known[p]["from"] == p for p in peers)
    assert all(one["nodes"] == 1 and one["some"][0]["node"] == "n1" for one in known.values())
    assert all(one["age_s"] < 60 for one in known.values()), known
    table = first.market.tool("marketctl", "site-news").stdout
    assert all(f"\n{name} " in table for name in known)

    hub = sites.pop(0)
    gone = stack.pop_all()
    with contextlib.ExitStack() as last:
        last.push(lambda *_: hub.__exit__(None, None, None))
        each(lambda site: site.__exit__(None, None, None), sites)
        del gone
        until("its peers are gone",
              lambda: not any(p["connected"] for p in hub.peers().values()), LIMIT)
        by_site, done = hub.everywhere("list-providers", status=1)
        assert set(by_site) == names
        assert by_site["s0"]["answer"][0]["node"] == "n1"
        for name in names - {"s0"}:
            heard = by_site[name]["heard"]
            assert heard["nodes"][0]["node"] == f"{name}:n1"
            assert heard["nodes"][0]["status"] == "heard of" and heard["age_s"] > 0
            assert ("error" in by_site[name]) == (name in peers)
        shown = hub.market.tool("marketctl", "-X", "all", "list-providers", check=False).stdout
        assert all(f"{name}:n1" in shown and f"\n{name}: as " in shown
                   for name in names - {"s0"})
