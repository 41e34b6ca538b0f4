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
std::vector<ResourceNeed> needs_of(const std::string& resources) {
    return parse_resources(resources).value_or(std::vector<ResourceNeed>{});
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
        for (const ResourceNeed& need : needs_of(*terms.resources)) used.insert(need.name);
    }
    const auto use = [&](const Asked& asked) {
        for (const NamedAmounts* const all : {&asked.here, &asked.licences})
            for (const NamedAmount& one : *all) used.insert(names_.at(one.name));
    };
    for (const auto& [id, claim] : claims_) use(claim.asked);
    for (const SoldAhead& one : ahead_) use(one.asked);
    std::erase_if(numbers_, [&](const auto& one) { return !used.contains(one.first); });
    std::erase_if(names_, [&](const auto& one) { return !numbers_.contains(one.second); });
    forget_at_ = names_few + 2 * names_.size();
}

bool ResourceBook::of_market(const std::string& name) const {
    return std::any_of(licences_.begin(), licences_.end(),
                       [&](const ResourceOffer& one) { return one.name == name; });
}

void ResourceBook::set_licences(const std::vector<ResourceOffer>& all) {
    licences_ = all;
    for (SoldAhead& one : ahead_) one.asked = asked(one.resources);
}

ResourceBook::Asked ResourceBook::asked(const JobTerms& terms) const {
    return terms.resources.empty() ? Asked{} : asked(*terms.resources);
}

ResourceBook::Asked ResourceBook::asked(const std::string& resources) const {
    Asked asked;
    for (const ResourceNeed& need : needs_of(resources))
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

// The first of what it asks for that is not free there beside what it has, and `before` jobs of the
// same.
std::optional<ResourceBook::Shortage> ResourceBook::short_of(const Job& job, const Asked& asked,
                                                             const Node& node,
                                                             int32_t before) const {
    const auto own = before > 0 ? claims_.end() : claims_.find(job.id());
    const bool is_there = own != claims_.end() && claims_on(job.id(), node.id());
    const auto missing = [&](const NamedOffers& all, const NamedAmount& one, int64_t taken) {
        const NamedOffer* const offer = find_named(all, one.name);
        return (offer ? offer->count : 0) - taken < int64_t{one.count} * (before + 1);
    };
    // A place of its own here was sold beside all that is sold to others, for that time.
    const Contract& sold = *job.record.contract;
    const bool is_own =
        sold.is_sold() && !sold.over && sold.node == node.id() && ahead_unix_ >= sold.start;
    const bool stays = !ahead_.empty() && !is_own && never_leaves(asked, node);
    const Nanos leaves = stays ? end_of(job, ahead_unix_) : Nanos{};
    const auto ahead = [&](const Node* of, uint32_t name) {
        return stays ? most_had(job, of, name, ahead_unix_, leaves, true).most : 0;
    };
    if (!asked.here.empty() && !is_there) {
        const NamedOffers here = offered(node);
        for (const NamedAmount& one : asked.here)
            if (missing(here, one, taken(node.id(), one.name) + ahead(&node, one.name)))
                return Shortage{one, node.id()};
    }
    if (!asked.licences.empty() && own == claims_.end()) {
        const NamedOffers all = offered();
        for (const NamedAmount& one : asked.licences)
            if (missing(all, one, taken(one.name) + ahead(nullptr, one.name)))
                return Shortage{one, {}};
    }
    return {};
}

bool ResourceBook::has_room(const Job& job, const Node& node, int32_t before) const {
    const JobTerms& terms = job.record.report.terms;
    return terms.resources.empty() || !short_of(job, asked(terms), node, before);
}

// -------------------------------------------------------------------------------------------------
// what was sold ahead

bool ResourceBook::set_ahead(const std::vector<Ahead>& all, Nanos unix) {
    ahead_unix_ = unix;
    if (std::ranges::equal(ahead_, all, [](const Ahead& a, const Ahead& b) { return a == b; }))
        return false;
    ahead_.clear();
    for (const Ahead& one : all) ahead_.push_back({one, asked(one.resources)});
    std::ranges::stable_sort(ahead_, {}, [](const SoldAhead& one) { return one.node; });
    return true;
}

bool ResourceBook::is_device(const Node& node, uint32_t name) const {
    const auto& all = node.record.report.resources;
    return std::any_of(all.begin(), all.end(), [&](const ResourceOffer& one) {
        return one.device && names_.at(name) == one.name;
    });
}

// A job that may run for so long only is gone then, and a little later at most.
Nanos ResourceBook::end_of(const Job& job, Nanos unix) {
    const JobTerms& terms = job.record.report.terms;
    const RunLimits& limits = *terms.limits;
    // Its home ends it with its place, and who is there later may stay for ever.
    if (const Contract& c = *job.record.contract; terms.booking->asks() && c.is_sold())
        return unix < c.end + leaves_within ? c.end : Nanos::never();
    if (limits.run.ns <= 0 || limits.at_speed > 0) return Nanos::never();
    const Nanos left = std::max(Nanos{}, limits.run - job.record.report.stats.run_time);
    return unix + left + leaves_within;
}

// A holder of these has a device among them there.
bool ResourceBook::never_leaves(const Asked& asked, const Node& node) const {
    return std::any_of(asked.here.begin(), asked.here.end(),
                       [&](const NamedAmount& one) { return is_device(node, one.name); });
}

// The rows of one node, which stand together, or (null) of all nodes.
std::span<const ResourceBook::SoldAhead> ResourceBook::ahead_on(const Node* node) const {
    if (!node) return ahead_;
    const auto found = std::ranges::equal_range(
        ahead_, node->id(), {}, [](const SoldAhead& one) -> const NodeName& { return one.node; });
    return {found.begin(), found.end()};
}

// Returns how much others have of that name, of that node or (null) of the market, at the moment
// from `from` on and before `until` when they have most. It counts what was sold to them for then
// and, but for `not_yet_had`, what they keep.
ResourceBook::Had ResourceBook::most_had(const Job& job, const Node* node, uint32_t name,
                                         Nanos from, Nanos until, bool not_yet_had) const {
    struct Other {
        Nanos from, gone;
        int64_t count;
    };
    std::vector<Other> others;
    std::set<Nanos> moments{from};
    for (const SoldAhead& one : ahead_on(node)) {
        const NamedAmount* const amount =
            find_named(node ? one.asked.here : one.asked.licences, name);
        // kept() counts whoever is there after the end of his time.
        if (!amount || one.job == job.id() || one.end <= ahead_unix_) continue;
        const bool has = node ? claims_on(one.job, node->id()) : claims_.contains(one.job);
        if (has && not_yet_had) continue;
        const Node* const at = book_.find_node(one.node);
        const bool stays = at && never_leaves(one.asked, *at);
        // A job that got a device before its time keeps it until its time is over.
        const bool is_there = stays && claims_on(one.job, one.node);
        const Nanos begins = is_there ? std::min(one.start, ahead_unix_) : one.start;
        const Nanos gone = stays ? one.end + leaves_within : one.end;
        if (begins >= until || gone <= from) continue;
        others.push_back({begins, gone, amount->count});
        moments.insert(std::max(begins, from));
    }
    Had had{0, !others.empty()};
    for (const Nanos at : moments) {
        int64_t sum = not_yet_had ? 0 : kept(job, node, name, at);
        for (const Other& one : others)
            if (one.from <= at && at < one.gone) sum += one.count;
        had.most = std::max(had.most, sum);
    }
    return had;
}

bool ResourceBook::claims_on(const JobId& id, const NodeName& node) const {
    const auto claim = claims_.find(id);
    return claim != claims_.end() &&
           (claim->second.places[0] == node || claim->second.places[1] == node);
}

// Others that cannot leave keep so many from that moment on, of that node or (null) of the market,
// but for those to whom it was sold ahead: these end with their time. Whoever has a device, or is
// on his way to one, cannot leave.
int64_t ResourceBook::kept(const Job& job, const Node* node, uint32_t name, Nanos from) const {
    int64_t sum = 0;
    const auto add = [&](const JobId& id, const Claim& claim) {
        const NamedAmount* const has =
            find_named(node ? claim.asked.here : claim.asked.licences, name);
        const Job* const other = has ? book_.find(id) : nullptr;
        if (!other || other == &job) return;
        const Contract& c = *other->record.contract;
        const bool sold = node ? c.node == node->id() : !c.node.empty();
        if (sold && ahead_unix_ < c.end) return;
        const Nanos ends = end_of(*other, ahead_unix_);
        if (ends != Nanos::never() && ends + (sold ? leaves_within : Nanos{}) <= from) return;
        bool stays = !other->rooted_on.empty();
        for (const NodeName& place : claim.places)
            if (const Node* const at = place.empty() ? nullptr : book_.find_node(place))
                stays = stays || never_leaves(claim.asked, *at);
        if (stays && (!node || claims_on(id, node->id()))) sum += has->count;
    };
    if (!node)
        for (const auto& [id, claim] : claims_) add(id, claim);
    else
        for (const auto& [id, other] : node->jobs)
            if (const auto claim = claims_.find(id); claim != claims_.end()) add(id, claim->second);
    return sum;
}

Money ResourceBook::reserve_of(const JobTerms& terms, const Node& node) const {
    if (terms.resources.empty()) return {};
    const Asked wants = asked(terms);
    __int128 sum = 0;
    const auto add = [&](const NamedOffers& offers, const NamedAmounts& amounts) {
        for (const NamedAmount& one : amounts)
            if (const NamedOffer* const offer = find_named(offers, one.name))
                sum += static_cast<__int128>(offer->reserve.micro) * one.count;
    };
    add(offered(node), wants.here);
    add(offered(), wants.licences);
    const __int128 cpus = std::max(1, terms.cpus);
    return Money{
        static_cast<int64_t>(std::min<__int128>((sum + cpus - 1) / cpus, money_max.micro))};
}

bool ResourceBook::is_kept(const Job& job, const Node& node) const {
    const JobTerms& terms = job.record.report.terms;
    if (ahead_.empty() || terms.resources.empty() || claims_on(job.id(), node.id())) return false;
    const Asked wants = asked(terms);
    // Whoever is to have a device in his time gets no other one before, nor begins elsewhere: he
    // could not come to it.
    const Contract& own = *job.record.contract;
    if (own.is_sold() && !own.over && !own.node.empty() && own.node != node.id()) {
        const Node* const to = book_.find_node(own.node);
        if (never_leaves(wants, node) || (to && never_leaves(wants, *to))) return true;
    }
    if (!never_leaves(wants, node)) return false;
    const Nanos leaves = end_of(job, ahead_unix_);
    const auto lacks_some = [&](const NamedOffers& all, const NamedAmounts& amounts,
                                const Node* of) {
        return std::any_of(amounts.begin(), amounts.end(), [&](const NamedAmount& one) {
            const NamedOffer* const offer = find_named(all, one.name);
            const Had had = most_had(job, of, one.name, ahead_unix_, leaves, false);
            return had.sold && offer && offer->count - had.most < one.count;
        });
    };
    return lacks_some(offered(node), wants.here, &node) ||
           lacks_some(offered(), wants.licences, nullptr);
}

bool ResourceBook::could_sell(const Job& job, const Node& node, Nanos start, Nanos end) const {
    const JobTerms& terms = job.record.report.terms;
    if (terms.resources.empty()) return true;
    const Asked wants = asked(terms);
    const Nanos gone = never_leaves(wants, node) ? end + leaves_within : end;
    const auto has_all = [&](const NamedOffers& all, const NamedAmounts& amounts, const Node* of) {
        return std::all_of(amounts.begin(), amounts.end(), [&](const NamedAmount& one) {
            const NamedOffer* const offer = find_named(all, one.name);
            return offer &&
                   offer->count - most_had(job, of, one.name, start, gone, false).most >= one.count;
        });
    };
    return has_all(offered(node), wants.here, &node) && has_all(offered(), wants.licences, nullptr);
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
        if (!offer || offer->count < one.count) return ResourceNeed{names_.at(one.name), one.count};
    }
    return {};
}

std::string ResourceBook::device(const JobTerms& terms, const Node& node) const {
    if (terms.resources.empty()) return {};
    for (const ResourceNeed& need : needs_of(*terms.resources))
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

// Names the holder that pays least of all those that have what is missing somewhere.
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
            .with(Figure::cause, resources_text({{names_.at(of->amount.name), of->amount.count}}));
    if (!of->node.empty()) reason = std::move(reason).with(Figure::node, of->node);
    if (!weakest) return reason;
    return std::move(reason)
        .with(Figure::job, weakest->id().text())
        .with(Figure::price, weakest->record.price);
}

}  // namespace souk::market
