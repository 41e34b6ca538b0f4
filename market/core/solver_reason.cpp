// SPDX-License-Identifier: GPL-2.0-or-later
// What a change is explained with (Solver::reason).
#include "market/core/solver.hpp"

namespace souk::market {

// Of a job that lost its place: from which bid on it would have one again.
Reason Solver::with_bid(Reason reason, JobKey job) const {
    const auto win = winning_bid(job);
    return win ? std::move(reason).with(Figure::bid, *win) : reason;
}

Reason Solver::gain(const Change& c, const std::string& from, const std::string& to) const {
    const auto old = provider(c.from), now = provider(c.to);
    if (old && now && old->speed == now->speed)
        return Reason(ReasonCode::lower_reserve).with(Figure::node, to).with(Figure::other, from);
    return Reason(ReasonCode::faster)
        .with(Figure::node, to)
        .with(Figure::speed, int64_t{now ? now->speed : 0})
        .with(Figure::other, from)
        .with(Figure::slower, int64_t{old ? old->speed : 0});
}

Reason Solver::reason(const Change& c, const Names& names) const {
    const std::string from = c.from.n != 0 ? names.provider(c.from) : "";
    const std::string to = c.to.n != 0 ? names.provider(c.to) : "";
    const auto job = this->job(c.job);
    const Money own = job ? job->value : Money{};
    const bool freezes = c.kind == ChangeKind::freeze;
    switch (c.cause) {
        case Cause::placed: {
            Reason r = Reason(ReasonCode::placed).with(Figure::own, own).with(Figure::node, to);
            const auto p = provider(c.to);
            return p ? std::move(r).with(Figure::reserve, p->reserve) : r;
        }
        case Cause::faster: return gain(c, from, to);
        case Cause::near_files:
            return Reason(ReasonCode::near_files).with(Figure::node, to).with(Figure::other, from);
        case Cause::cheaper:
            return freezes ? with_bid(ReasonCode::no_place_worth_it, c.job)
                           : Reason(ReasonCode::worth_more)
                                 .with(Figure::node, to)
                                 .with(Figure::other, from);
        case Cause::displaced: {
            const auto other = this->job(c.other);
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
            const auto p = provider(c.from);
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
