// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/resource_book.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {

namespace {

template <class Named>
void in_order(std::vector<Named>& all) {
    std::sort(all.begin(), all.end(),
              [](const Named& a, const Named& b) { return a.name < b.name; });
}

int32_t within(int64_t count) {
    return static_cast<int32_t>(std::clamp<int64_t>(count, 0, NamedAmount::count_max));
}

void take_off(NamedOffers& offers, const NamedAmounts& amounts) {
    for (NamedOffer& offer : offers)
        if (const NamedAmount* const kept = find_named(amounts, offer.name))
            offer.count = within(int64_t{offer.count} - kept->count);
}

}  // namespace

uint32_t ResourceBook::number(const std::string& name) const {
    const auto [at, is_new] = numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return at->second;
}

bool ResourceBook::of_market(const std::string& name) const {
    return std::any_of(licences_.begin(), licences_.end(),
                       [&](const ResourceOffer& one) { return one.name == name; });
}

void ResourceBook::set_licences(const std::vector<ResourceOffer>& all) { licences_ = all; }

ResourceBook::Asked ResourceBook::asked(const JobTerms& terms) const {
    Asked asked;
    if (terms.resources.empty()) return asked;
    const auto needs = parse_resources(*terms.resources);
    if (!needs) return asked;  // its home has refused that
    for (const ResourceNeed& need : *needs)
        (of_market(need.name) ? asked.licences : asked.here)
            .push_back({number(need.name), within(need.count)});
    in_order(asked.here);
    in_order(asked.licences);
    return asked;
}

NamedOffers ResourceBook::offered(const Node& node) const {
    NamedOffers all;
    for (const ResourceOffer& one : node.record.report.resources)
        if (!of_market(one.name)) all.push_back({number(one.name), within(one.count), one.reserve});
    in_order(all);
    // A node that says a name twice has what it says first.
    all.erase(std::unique(all.begin(), all.end(),
                          [](const auto& a, const auto& b) { return a.name == b.name; }),
              all.end());
    return all;
}

NamedOffers ResourceBook::offered() const {
    NamedOffers all;
    for (const ResourceOffer& one : licences_)
        all.push_back({number(one.name), within(one.count), one.reserve});
    in_order(all);
    return all;
}

NamedOffers ResourceBook::left_by_rooted(const Node& node) const {
    NamedOffers all = offered(node);
    if (all.empty()) return all;
    for (const auto& [id, job] : node.jobs)
        if (const auto claim = claims_.find(id);
            claim != claims_.end() && *job->rooted_on == node.id())
            take_off(all, claim->second.asked.here);
    return all;
}

NamedOffers ResourceBook::left_by_rooted(const std::vector<const Job*>& rooted) const {
    NamedOffers all = offered();
    for (const Job* const job : rooted)
        if (const auto claim = claims_.find(job->id()); claim != claims_.end())
            take_off(all, claim->second.asked.licences);
    return all;
}

void ResourceBook::count(const Claim& claim, int by) {
    for (const NodeName& node : claim.places) {
        if (node.empty()) continue;
        for (const NamedAmount& one : claim.asked.here) {
            int64_t& sum = on_node_[{node, one.name}];
            sum += int64_t{by} * one.count;
            if (sum == 0) on_node_.erase({node, one.name});
        }
    }
    for (const NamedAmount& one : claim.asked.licences) {
        int64_t& sum = of_all_[one.name];
        sum += int64_t{by} * one.count;
        if (sum == 0) of_all_.erase(one.name);
    }
}

void ResourceBook::claim(const Job& job) {
    const auto known = claims_.find(job.id());
    const JobTerms& terms = job.record.report.terms;
    Claim now;
    if (!terms.resources.empty() && job.claims != std::array<NodeName, 2>{})
        now = {asked(terms), job.claims};
    if (!now.asked.any()) {
        if (known == claims_.end()) return;
        count(known->second, -1);
        claims_.erase(known);
        return;
    }
    if (known != claims_.end() && known->second == now) return;
    if (known != claims_.end()) count(known->second, -1);
    count(now, 1);
    claims_[job.id()] = std::move(now);
}

int64_t ResourceBook::taken(const NodeName& node, uint32_t name) const {
    const auto at = on_node_.find({node, name});
    return at == on_node_.end() ? 0 : at->second;
}

int64_t ResourceBook::taken(uint32_t name) const {
    const auto at = of_all_.find(name);
    return at == of_all_.end() ? 0 : at->second;
}

int64_t ResourceBook::taken(const NodeName& node, const std::string& name) const {
    return taken(node, number(name));
}

int64_t ResourceBook::taken(const std::string& name) const { return taken(number(name)); }

// The first of what it asks for that is not free there, and on which node; empty: of the market.
std::optional<std::pair<NamedAmount, NodeName>> ResourceBook::short_of(const Job& job,
                                                                       const Node& node) const {
    const Asked asked = this->asked(job.record.report.terms);
    const auto own = claims_.find(job.id());
    const bool is_there = own != claims_.end() && (own->second.places[0] == node.id() ||
                                                   own->second.places[1] == node.id());
    const auto missing = [](const NamedOffers& all, const NamedAmount& one, int64_t taken) {
        const NamedOffer* const offer = find_named(all, one.name);
        return (offer ? offer->count : 0) - taken < one.count;
    };
    const NamedOffers here = offered(node), licences = offered();
    for (const NamedAmount& one : asked.here)
        if (!is_there && missing(here, one, taken(node.id(), one.name))) return {{one, node.id()}};
    for (const NamedAmount& one : asked.licences)
        if (own == claims_.end() && missing(licences, one, taken(one.name))) return {{one, {}}};
    return {};
}

bool ResourceBook::has_room(const Job& job, const Node& node, int32_t before) const {
    if (job.record.report.terms.resources.empty()) return true;
    if (before == 0) return !short_of(job, node);
    // Several alike ask as one that asks for all of it.
    Job all;
    all.record.report.terms = job.record.report.terms;
    std::vector<ResourceNeed> needs =
        parse_resources(*job.record.report.terms.resources).value_or(std::vector<ResourceNeed>{});
    for (ResourceNeed& need : needs)
        need.count = std::min<int64_t>(need.count * (before + 1), NamedAmount::count_max);
    all.record.report.terms.resources = resources_text(needs);
    return !short_of(all, node);
}

std::optional<ResourceNeed> ResourceBook::lacks(const JobTerms& terms, const Node& node) const {
    if (terms.resources.empty()) return {};
    const NamedOffers offers = offered(node);
    for (const NamedAmount& one : asked(terms).here) {
        const NamedOffer* const offer = find_named(offers, one.name);
        if (!offer || offer->count < one.count) return ResourceNeed{names_[one.name], one.count};
    }
    return {};
}

Reason ResourceBook::why_nowhere(const JobTerms& terms) const {
    if (terms.resources.empty()) return {};
    const NamedOffers licences = offered();
    for (const NamedAmount& one : asked(terms).licences)
        if (const NamedOffer* const offer = find_named(licences, one.name);
            !offer || offer->count < one.count)
            return Reason(ReasonCode::licences_few)
                .with(Figure::cause, resources_text({{names_[one.name], one.count}}))
                .with(Figure::most, int64_t{offer ? offer->count : 0});
    std::optional<ResourceNeed> lacking;
    for (const auto& [name, node] : book_.nodes()) {
        if (!node.connected || !node.record.has_report) continue;
        const auto lacks_here = lacks(terms, node);
        if (!lacks_here) return {};
        if (!lacking) lacking = lacks_here;
    }
    if (!lacking) return {};
    return Reason(ReasonCode::resource_nowhere).with(Figure::cause, resources_text({*lacking}));
}

Reason ResourceBook::taken_by(const Job& job, const NamedAmount& amount,
                              const NodeName& node) const {
    const Job* weakest = nullptr;
    for (const auto& [id, claim] : claims_) {
        const bool there = node.empty() || claim.places[0] == node || claim.places[1] == node;
        const auto& has = node.empty() ? claim.asked.licences : claim.asked.here;
        const Job* const holder = book_.find(id);
        if (!there || !find_named(has, amount.name) || !holder || holder == &job) continue;
        if (!weakest || holder->record.price < weakest->record.price) weakest = holder;
    }
    Reason reason = Reason(ReasonCode::resource_taken)
                        .with(Figure::cause, resources_text({{names_[amount.name], amount.count}}));
    if (!node.empty()) reason = std::move(reason).with(Figure::node, node);
    if (!weakest) return reason;
    return std::move(reason)
        .with(Figure::job, weakest->id().text())
        .with(Figure::price, weakest->record.price);
}

}  // namespace souk::market
