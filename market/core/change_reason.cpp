// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/change_reason.hpp"

#include <utility>

namespace souk::market {

namespace {

Reason reason_of_gain(const Solver& solver, const Change& c, const std::string& from,
                      const std::string& to) {
    const auto old = solver.provider(c.from), now = solver.provider(c.to);
    if (old && now && old->speed == now->speed)
        return Reason(ReasonCode::lower_reserve).with(Figure::node, to).with(Figure::other, from);
    return Reason(ReasonCode::faster)
        .with(Figure::node, to)
        .with(Figure::speed, int64_t{now ? now->speed : 0})
        .with(Figure::other, from)
        .with(Figure::slower, int64_t{old ? old->speed : 0});
}

}  // namespace

Reason change_reason(const Solver& solver, const Change& c, const Names& names) {
    // Adds from which bid on a job that lost its place would have one again.
    const auto with_bid = [&](Reason reason, JobKey key) {
        const auto win = solver.winning_bid(key);
        return win ? std::move(reason).with(Figure::bid, *win) : reason;
    };
    const std::string from = c.from.n != 0 ? names.provider(c.from) : "";
    const std::string to = c.to.n != 0 ? names.provider(c.to) : "";
    const auto job = solver.job(c.job);
    const Money own = job ? job->value : Money{};
    const bool freezes = c.kind == ChangeKind::freeze;
    switch (c.cause) {
        case Cause::placed: {
            Reason r = Reason(ReasonCode::placed).with(Figure::own, own).with(Figure::node, to);
            const auto p = solver.provider(c.to);
            return p ? std::move(r).with(Figure::reserve, p->reserve) : r;
        }
        case Cause::faster: return reason_of_gain(solver, c, from, to);
        case Cause::near_files:
            return Reason(ReasonCode::near_files).with(Figure::node, to).with(Figure::other, from);
        case Cause::cheaper:
            return freezes ? with_bid(ReasonCode::no_place_worth_it, c.job)
                           : Reason(ReasonCode::worth_more)
                                 .with(Figure::node, to)
                                 .with(Figure::other, from);
        case Cause::displaced: {
            const auto other = solver.job(c.other);
            const Money bid = other ? other->value : c.other_value;
            Reason r = Reason(ReasonCode::displaced)
                           .with(Figure::job, names.job(c.other))
                           .with(Figure::price, bid);
            if (bid != c.other_value) r = std::move(r).with(Figure::counts, c.other_value);
            return with_bid(std::move(r), c.job);
        }
        case Cause::share:
            return Reason(ReasonCode::turn_of_other).with(Figure::job, names.job(c.other));
        case Cause::below_reserve: {
            const auto p = solver.provider(c.from);
            return with_bid(Reason(ReasonCode::below_reserve)
                                .with(Figure::own, own)
                                .with(Figure::node, from)
                                .with(Figure::reserve, p ? p->reserve : Money{}),
                            c.job);
        }
        case Cause::provider_gone:
            return with_bid(Reason(ReasonCode::provider_gone).with(Figure::node, from), c.job);
        case Cause::no_room:
            return with_bid(Reason(ReasonCode::provider_smaller).with(Figure::node, from), c.job);
        case Cause::barred:
            return with_bid(Reason(ReasonCode::barred).with(Figure::node, from), c.job);
        case Cause::pinned:
            return freezes ? Reason(ReasonCode::pinned_frozen)
                           : Reason(ReasonCode::pinned_on).with(Figure::node, to);
        case Cause::adopted: return ReasonCode::adopted;
        case Cause::balanced:
            return c.kind == ChangeKind::move
                       ? Reason(ReasonCode::balanced)
                             .with(Figure::node, to)
                             .with(Figure::other, from)
                       : Reason(ReasonCode::lowest_load).with(Figure::node, to);
    }
    return {};
}

}  // namespace souk::market
