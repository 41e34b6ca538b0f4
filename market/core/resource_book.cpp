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

// A home refuses what cannot be read.
std::vector<ResourceNeed> needs_of(const JobTerms& terms) {
    return parse_resources(*terms.resources).value_or(std::vector<ResourceNeed>{});
}

void take_off(NamedOffers& offers, const NamedAmounts& amounts) {
    for (NamedOffer& offer : offers)
        if (const NamedAmount* const kept = find_named(amounts, offer.name))
            offer.count = within(int64_t{offer.count} - kept->count);
}

}  // namespace

uint32_t ResourceBook::number(const std::string& name) const {
    const auto known = numbers_.find(name);
    if (known != numbers_.end()) return known->second;
    do ++last_;
    while (names_.contains(last_));
    names_.emplace(last_, name);
    numbers_.emplace(name, last_);
    return last_;
}

void ResourceBook::forget_names() {
    if (names_.size() < forget_at_) return;
    std::set<std::string> used;
    for (const ResourceOffer& one : licences_) used.insert(one.name);
    for (const auto& [name, node] : book_.nodes())
        for (const ResourceOffer& one : node.record.report.resources) used.insert(one.name);
    for (const auto& [id, job] : book_.jobs()) {
        const JobTerms& terms = job.record.report.terms;
        if (terms.resources.empty() || (job.phase() == JobPhase::finished && !job.in_solver))
            continue;
        for (const ResourceNeed& need : needs_of(terms)) used.insert(need.name);
    }
    for (const auto& [id, claim] : claims_)
        for (const NamedAmounts* const all : {&claim.asked.here, &claim.asked.licences})
            for (const NamedAmount& one : *all) used.insert(names_.at(one.name));
    std::erase_if(numbers_, [&](const auto& one) { return !used.contains(one.first); });
    std::erase_if(names_, [&](const auto& one) { return !numbers_.contains(one.second); });
    forget_at_ = names_few + 2 * names_.size();
}

bool ResourceBook::of_market(const std::string& name) const {
    return std::any_of(licences_.begin(), licences_.end(),
                       [&](const ResourceOffer& one) { return one.name == name; });
}

void ResourceBook::set_licences(const std::vector<ResourceOffer>& all) { licences_ = all; }

ResourceBook::Asked ResourceBook::asked(const JobTerms& terms) const {
    Asked asked;
    if (terms.resources.empty()) return asked;
    for (const ResourceNeed& need : needs_of(terms))
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

// The first of what it asks for, so many times, that is not free there beside what it has.
std::optional<ResourceBook::Shortage> ResourceBook::short_of(const JobId& id, const Asked& asked,
                                                             const Node& node,
                                                             int32_t times) const {
    const auto own = claims_.find(id);
    const bool is_there = own != claims_.end() && (own->second.places[0] == node.id() ||
                                                   own->second.places[1] == node.id());
    const auto missing = [&](const NamedOffers& all, const NamedAmount& one, int64_t taken) {
        const NamedOffer* const offer = find_named(all, one.name);
        return (offer ? offer->count : 0) - taken < int64_t{one.count} * times;
    };
    if (!asked.here.empty() && !is_there) {
        const NamedOffers here = offered(node);
        for (const NamedAmount& one : asked.here)
            if (missing(here, one, taken(node.id(), one.name))) return Shortage{one, node.id()};
    }
    if (!asked.licences.empty() && own == claims_.end()) {
        const NamedOffers all = offered();
        for (const NamedAmount& one : asked.licences)
            if (missing(all, one, taken(one.name))) return Shortage{one, {}};
    }
    return {};
}

// Several alike ask as one that asks for all of it.
bool ResourceBook::has_room(const Job& job, const Node& node, int32_t before) const {
    const JobTerms& terms = job.record.report.terms;
    if (terms.resources.empty()) return true;
    return !short_of(before == 0 ? job.id() : JobId{}, asked(terms), node, before + 1);
}

std::optional<ResourceNeed> ResourceBook::lacks(const JobTerms& terms, const Node& node) const {
    if (terms.resources.empty()) return {};
    return lacks(asked(terms), node);
}

std::optional<ResourceNeed> ResourceBook::lacks(const Asked& asked, const Node& node) const {
    if (asked.here.empty()) return {};
    const NamedOffers offers = offered(node);
    for (const NamedAmount& one : asked.here) {
        const NamedOffer* const offer = find_named(offers, one.name);
        if (!offer || offer->count < one.count)
            return ResourceNeed{names_.at(one.name), one.count};
    }
    return {};
}

std::string ResourceBook::device(const JobTerms& terms, const Node& node) const {
    if (terms.resources.empty()) return {};
    for (const ResourceNeed& need : needs_of(terms))
        for (const ResourceOffer& one : node.record.report.resources)
            if (one.name == need.name && one.device && !of_market(one.name)) return one.name;
    return {};
}

Reason ResourceBook::why_nowhere(const JobTerms& terms) const {
    if (terms.resources.empty()) return {};
    const NamedOffers licences = offered();
    const Asked asked = this->asked(terms);
    for (const NamedAmount& one : asked.licences)
        if (const NamedOffer* const offer = find_named(licences, one.name);
            !offer || offer->count < one.count)
            return Reason(ReasonCode::licences_few)
                .with(Figure::cause, resources_text({{names_.at(one.name), one.count}}))
                .with(Figure::most, int64_t{offer ? offer->count : 0});
    std::optional<ResourceNeed> lacking;
    for (const auto& [name, node] : book_.nodes()) {
        if (!node.connected || !node.record.has_report) continue;
        const auto lacks_here = lacks(asked, node);
        if (!lacks_here) return {};
        if (!lacking) lacking = lacks_here;
    }
    if (!lacking) return {};
    return Reason(ReasonCode::resource_nowhere).with(Figure::cause, resources_text({*lacking}));
}

// By the holder that pays least of all those that have what is missing somewhere.
Reason ResourceBook::taken_by_weakest(const Job& job, const std::set<Shortage>& all) const {
    const Job* weakest = nullptr;
    const Shortage* of = &*all.begin();
    const auto see = [&](const JobId& id, const NamedAmounts& has, const NodeName& node) {
        for (const NamedAmount& one : has) {
            const auto missing = all.find({one, node});
            const Job* const holder = missing == all.end() ? nullptr : book_.find(id);
            if (!holder || holder == &job) continue;
            if (weakest && weakest->record.price <= holder->record.price) continue;
            weakest = holder;
            of = &*missing;
        }
    };
    for (const auto& [id, claim] : claims_) {
        for (const NodeName& node : claim.places)
            if (!node.empty()) see(id, claim.asked.here, node);
        see(id, claim.asked.licences, {});
    }
    Reason reason =
        Reason(ReasonCode::resource_taken)
            .with(Figure::cause,
                  resources_text({{names_.at(of->amount.name), of->amount.count}}));
    if (!of->node.empty()) reason = std::move(reason).with(Figure::node, of->node);
    if (!weakest) return reason;
    return std::move(reason)
        .with(Figure::job, weakest->id().text())
        .with(Figure::price, weakest->record.price);
}

}  // namespace souk::market
