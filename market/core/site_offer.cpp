// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_offer.hpp"

#include <algorithm>
#include <vector>

#include "kernel/base/rng.hpp"
#include "kernel/base/text.hpp"
#include "market/core/types.hpp"

namespace souk {
namespace {

using Wide = __int128;
constexpr Nanos usual_work = Nanos::from_s(3'600);

// When the job would end and what it would cost, each times the speeds of both: exact.
struct Reckoned {
    Wide end, cost;
    auto operator<=>(const Reckoned&) const = default;
};

Reckoned reckon(const SiteOffer& offer, const SiteOffer& other, Nanos work) {
    return {(Wide{offer.starts_in.ns} * offer.speed + Wide{work.ns} * market::speed_standard) *
                other.speed,
            Wide{offer.price.micro} * other.speed};
}

bool is_better(const SiteOffer& a, const SiteOffer& b, const OfferWish& wish) {
    const Nanos work = wish.work.ns > 0 ? wish.work : usual_work;
    const Reckoned x = reckon(a, b, work), y = reckon(b, a, work);
    if (wish.cheapest) return x.cost != y.cost ? x.cost < y.cost : x.end < y.end;
    return x < y;
}

}  // namespace

bool is_usable(const SiteAndOffer& one, const OfferWish& wish, bool pays) {
    const SiteOffer& offer = one.offer;
    return offer.why.empty() && offer.speed >= 1 && offer.speed <= market::speed_max &&
           offer.starts_in.ns >= 0 && offer.price >= Money{} && offer.price <= wish.most &&
           (!pays || !wish.move || gain_of(*wish.move, stay_of(offer), one.site).pays);
}

std::optional<size_t> best_offer(std::span<const SiteAndOffer> offers, const OfferWish& wish,
                                 uint64_t seed) {
    std::vector<size_t> best;  // equally good
    for (size_t i = 0; i < offers.size(); ++i) {
        const SiteOffer& offer = offers[i].offer;
        if (!is_usable(offers[i], wish, true)) continue;
        const bool better = !best.empty() && is_better(offer, offers[best[0]].offer, wish);
        if (better) best.clear();
        if (best.empty() || !is_better(offers[best[0]].offer, offer, wish)) best.push_back(i);
    }
    if (best.empty()) return std::nullopt;
    std::ranges::sort(best, {}, [&](size_t i) { return offers[i].site; });
    return best[Rng(seed).below(best.size())];
}

Money most_elsewhere(const JobTerms& terms) {
    const Money within = terms.sites->within;
    return within > Money{} ? std::min(within, terms.max_price) : terms.max_price;
}

const char* preference(const SiteWish& wish) {
    return wish.stays ? "stay" : wish.cheapest ? "cost" : "finish";
}

JobTerms told_to_sites(const JobTerms& terms) {
    JobTerms told;
    told.max_price = most_elsewhere(terms);
    told.memory_mb = terms.memory_mb;
    told.cpus = terms.cpus;
    told.runtime = terms.runtime;
    told.project = terms.project;
    told.needs = terms.needs;
    told.resources = terms.resources;
    return told;
}

Status check_site_wish(std::string_view text) {
    if (text.empty() || text == "any") return {};
    const std::vector<std::string> names = comma_parts(text);
    if (names.size() > wished_sites_max)
        return fail("more than " + std::to_string(wished_sites_max) + " sites");
    for (const std::string& name : names)
        if (!valid_site_name(name) || name == "any" || name == "own" || name == "all")
            return fail("'" + name.substr(0, 64) +
                        "' is no site: any, own, or names of sites with commas between");
    return {};
}

bool is_wished(const SiteWish& wish, std::string_view site) {
    if (wish.names.empty()) return false;
    const std::vector<std::string> names = comma_parts(wish.names);
    return wish.names == "any" || std::ranges::find(names, site) != names.end();
}

}  // namespace souk
