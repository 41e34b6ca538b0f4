// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_credit.hpp"

#include <algorithm>
#include <utility>

#include "market/core/bill.hpp"

namespace souk::market {
namespace {

// Visits the jobs of that site that have not ended.
template <class F>
void each_guest(const Book& book, const std::string& site, F visit) {
    const std::string prefix = site + ":";
    for (auto it = book.jobs().lower_bound({prefix, 0});
         it != book.jobs().end() && it->first.home.starts_with(prefix); ++it)
        if (it->second.phase() != JobPhase::finished) visit(it->second);
}

// The job has cost so much that no receipt has.
Money open_of(const Job& job, Nanos now) {
    return job.record.tab.amount + bill::cost(job, now) - job.record.account.amount;
}

}  // namespace

void SiteCredit::know(const std::string& site, uint32_t account, std::optional<Money> most,
                      Money nodes_had) {
    Peer& peer = peers_[site];
    peer.account = account;
    peer.most = most;
    peer.nodes_had = nodes_had;
    changed();
}

void SiteCredit::forget(const std::string& site) {
    const auto it = peers_.find(site);
    if (it == peers_.end()) return;
    set_over(it->second.account, false);
    peers_.erase(it);
}

Money SiteCredit::held_by_nodes(const std::string& site) const {
    Money held;
    const std::string prefix = site + ":";
    const auto& accounts = ledger_.accounts();
    for (auto it = accounts.lower_bound(Holder::provider(prefix));
         it != accounts.end() && it->first.kind == Holder::Kind::node &&
         it->first.node.starts_with(prefix);
         ++it)
        held += it->second.balance;
    return held;
}

Money SiteCredit::posted(const std::string& site) const {
    const auto peer = peers_.find(site);
    if (peer == peers_.end()) return {};
    const Money earned = held_by_nodes(site) - peer->second.nodes_had;
    return Money{} - ledger_.balance(Holder::user(peer->second.account)) - earned;
}

Money SiteCredit::owed(const std::string& site, Nanos now) const {
    Money owed = posted(site);
    each_guest(book_, site, [&](const Job& job) { owed += open_of(job, now); });
    const std::string prefix = site + ":";
    for (auto it = book_.nodes().lower_bound(prefix);
         it != book_.nodes().end() && it->first.starts_with(prefix); ++it)
        for (const auto& [id, job] : it->second.jobs)
            if (job->record.payee == it->first && of_site(id.home).site.empty())
                owed -= open_of(*job, now);
    return owed;
}

souk::Cause SiteCredit::why_not(const std::string& site, Nanos now) const {
    const auto peer = peers_.find(site);
    if (peer == peers_.end() || !peer->second.most) return {};
    if (owed(site, now) < *peer->second.most) return {};
    // The job's user is shown this, who need not know what sites owe.
    return souk::Cause(CauseCode::not_allowed,
                       "your site owes as much as it may here (souk peer settle)");
}

bool SiteCredit::overstays(const std::string& site, Nanos now) const {
    const auto peer = peers_.find(site);
    return peer != peers_.end() && peer->second.over_since != Nanos::never() &&
           now >= peer->second.over_since + leave_limit;
}

void SiteCredit::set_over(uint32_t account, bool over) {
    const auto user = book_.users().find(account);
    if (user == book_.users().end() || std::exchange(user->second.owes, over) == over) return;
    for (auto& [id, job] : book_.jobs())
        if (job.user == &user->second && job.phase() != JobPhase::finished) work_.touch(job);
    work_.decide();
}

void SiteCredit::look(Nanos now) {
    if (now < next_) return;
    next_ = Nanos::never();
    for (auto& [site, peer] : peers_) {
        const Nanos over_since = std::exchange(peer.over_since, Nanos::never());
        if (!peer.most) {
            set_over(peer.account, false);
            continue;
        }
        __int128 rate = 0;  // micro-units x ns / hour, as Account has it
        bool any = false, runs = false;
        each_guest(book_, site, [&](const Job& job) {
            any = true;
            if (job.run_since == Nanos::never()) return;
            runs = true;
            rate += static_cast<__int128>(job.record.price.micro) * job.record.report.terms.cpus;
        });
        const Money left = *peer.most - owed(site, now);
        set_over(peer.account, left.micro <= 0);
        if (runs && left.micro <= 0) peer.over_since = std::min(over_since, now);
        if (!any) continue;
        const __int128 span = rate > 0 && left.micro > 0
                                  ? static_cast<__int128>(left.micro) * hour_ns / rate
                                  : __int128{look_most.ns};
        const auto bounded = std::clamp<__int128>(span, look_least.ns, look_most.ns);
        next_ = std::min(next_, now + Nanos{static_cast<int64_t>(bounded)});
    }
}

}  // namespace souk::market
