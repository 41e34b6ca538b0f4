// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/market_audit.hpp"

#include "market/core/admission.hpp"
#include "market/core/prices_in_force.hpp"

namespace souk::market {

std::string MarketAudit::run() const {
    Sums sums;
    sums.paid = book_.meta().retired;
    sums.earned = PricesInForce::earned_by_forgotten(book_, ledger_);
    for (const auto part : {&MarketAudit::jobs, &MarketAudit::nodes})
        if (std::string wrong = (this->*part)(sums); !wrong.empty()) return wrong;
    if (std::string wrong = users(); !wrong.empty()) return wrong;
    if (!places_.supply_is_right()) return "what providers hold has changed unseen";
    if (ledger_.sum().micro != 0)
        return "the ledger's balances add up to " + format_money(ledger_.sum());
    if (sums.paid != sums.earned)
        return "paid " + format_money(sums.paid) + " and earned " + format_money(sums.earned) +
               " differ";
    return {};
}

std::string MarketAudit::jobs(Sums& sums) const {
    for (const auto& [id, job] : book_.jobs()) {
        const JobRecord& r = job.record;
        const JobTerms& t = r.report.terms;
        if (r.finish_seq == 0) sums.paid += r.account.amount;
        if (!r.tab.empty()) sums.open[Holder::provider(r.payee)] += r.tab.amount;
        if (t.budget.micro > 0 && r.account.amount > t.budget && !r.out_of_budget &&
            r.finish_seq == 0)
            return id.text() + " has spent more than its budget";
        for (const NodeName& name : job.claims) {
            if (name.empty()) continue;
            sums.used[name].first += job.claim_cpus;
            sums.used[name].second += job.claim_mb;
        }
        const bool holds = r.order || !job.claims[0].empty() || !job.claims[1].empty();
        if (r.report.phase == JobPhase::finished && holds)
            return id.text() + " is finished and holds room or an order";
    }
    return {};
}

std::string MarketAudit::nodes(Sums& sums) const {
    for (const auto& [name, node] : book_.nodes()) {
        sums.earned += node.record.earned;
        const Holder holder = Holder::provider(name);
        if (ledger_.by_use(holder) + sums.open[holder] != node.record.earned)
            return name + " has earned " + format_money(node.record.earned) +
                   ", the ledger says otherwise";
        const auto& [cpus, mb] = sums.used[name];
        if (cpus != node.used_cpus || mb != node.used_mb)
            return name + " counts its guests' room wrong";
    }
    return {};
}

std::string MarketAudit::users() const {
    std::map<uint32_t, User> sums;
    for (const auto& [id, job] : book_.jobs()) {
        const uint32_t uid = job.record.payer != 0 ? job.record.payer : job.record.report.uid;
        User& sum = sums[uid];
        if (job.user != &book_.users().at(uid)) return id.text() + " is not listed with its user";
        sum.spent += job.record.tab.amount;
        sum.held += job.held != Job::Held::none;
        if (job.claim_cpus == 0 || (job.claims[0].empty() && job.claims[1].empty())) continue;
        sum.cpus += job.claim_cpus;
        sum.claiming.insert(id);
    }
    for (const auto& [uid, user] : book_.users()) {
        const User& sum = sums[uid];
        if (user.funds && *user.funds != ledger_.balance(Holder::user(uid)) - sum.spent +
                                             user.record.limits.credit.value_or(Money{}))
            return called(user) + " has other funds than its account says";
        if (user.spent != sum.spent + ledger_.paid_today(uid))
            return called(user) + " has spent other than its receipts say";
        if (user.claiming != sum.claiming || user.cpus != sum.cpus)
            return called(user) + " counts what it runs wrong";
        if (user.held != sum.held) return called(user) + " counts the jobs that are held wrong";
    }
    return {};
}

}  // namespace souk::market
