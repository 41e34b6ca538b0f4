// SPDX-License-Identifier: GPL-2.0-or-later
// What a change is explained with (Solver::reason).
#include "market/core/solver.hpp"

namespace souk::market {

std::string Solver::reason(const Change& c, const Names& names) const {
    const std::string from = c.from.n != 0 ? names.provider(c.from) : "";
    const std::string to = c.to.n != 0 ? names.provider(c.to) : "";
    const auto job = this->job(c.job);
    const std::string bid = job ? format_money(job->value) : "?";
    const auto win = winning_bid(c.job);
    const std::string back = win ? "; " + format_money(*win) + " would win it back" : "";
    auto speed_of = [&](ProviderKey key) {
        const auto p = provider(key);
        return p ? std::to_string(p->speed) : std::string("?");
    };
    switch (c.cause) {
        case Cause::placed: {
            const auto p = provider(c.to);
            return "its bid " + bid + " takes " + to +
                   (p ? " (reserve " + format_money(p->reserve) + ")" : "");
        }
        case Cause::faster:
            if (speed_of(c.from) == speed_of(c.to)) return to + " has a lower reserve than " + from;
            return to + " runs at speed " + speed_of(c.to) + ", " + from + " at " +
                   speed_of(c.from);
        case Cause::cheaper:
            return c.kind == ChangeKind::freeze
                       ? "no place is worth its price to it now" + back
                       : to + " is worth more to it than " + from + " at the prices now";
        case Cause::displaced:
            return "displaced by job " + names.job(c.other) + " at " + format_money(c.other_value) +
                   back;
        case Cause::share: return "the turn of job " + names.job(c.other) + " by its user's share";
        case Cause::below_reserve: {
            const auto p = provider(c.from);
            return "its bid " + bid + " is below the reserve of " + from +
                   (p ? ", " + format_money(p->reserve) : "") + back;
        }
        case Cause::provider_gone: return from + " has left the market" + back;
        case Cause::no_room: return from + " offers less than its guests need" + back;
        case Cause::barred: return "it may not run on " + from + " for now" + back;
        case Cause::pinned: return c.kind == ChangeKind::freeze ? "held frozen" : "held on " + to;
        case Cause::adopted: return "decided by the external solver";
        case Cause::balanced:
            return c.kind == ChangeKind::move ? to + " has a lower load than " + from
                                              : to + " has the lowest load that it can have";
    }
    return "";
}

}  // namespace souk::market
