// SPDX-License-Identifier: GPL-2.0-or-later
// Offers between sites (docs/sites.md): what a market asks a peer's market for a job of its own
// that waits, or that runs and may gain by a move, what that one answers, and which of several
// offers is the best. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "market/core/messages.hpp"
#include "market/core/site_gain.hpp"

namespace souk {

inline constexpr size_t site_token_max = 1'024;

// Gangs of up to so many components go to several sites, and a site offers so many rooms for one.
inline constexpr size_t site_parts_max = 64, site_rooms_max = 32;

// One component of a gang, and room on one machine, in which several of them may go.
struct SitePart {
    int32_t cpus = 1;
    int64_t memory_mb = 0;
    bool operator==(const SitePart&) const = default;
};
struct SiteRoom {
    int32_t cpus = 1;
    int64_t memory_mb = 0;
    Money price;        // per CPU-hour
    int64_t speed = 0;  // of the machine
    Nanos starts_in;    // so long it takes to clear it
    bool operator==(const SiteRoom&) const = default;
};

// Could this job begin at your site? Spans, not times: the clocks of two sites differ.
struct SiteAsk {
    uint64_t number = 0;  // the answer carries it
    JobId job;
    std::string user;
    JobTerms terms;          // with the project by its name there
    Nanos hold;              // for so long the place is to be kept, at least
    std::string token = {};  // what the submit filter there has added; the arrival filter sees it
    // The job is the first of a gang, and these are its required components: which rooms are there
    // for any of them? Its terms are those of the smallest one. A version before passes over that.
    std::vector<SitePart> parts = {};
    bool operator==(const SiteAsk&) const = default;
};

// The words of two markets about a job that runs, or is to run, at the other's site
// (market/core/lent_jobs.hpp). Each writes names as they are at its own site. `number`: of the stay
// there, or of the question about one, as the job's own market counts them; the other one says it
// back. 0: a version before.
struct SiteJob {  // its own market: the job as its home says
    JobReport report;
    NodeName to;  // a node of its own site, to which it is to move from where it runs; empty: none
    std::string address;  // of that node's agentd
    uint64_t number = 0;
    std::string token = {};  // SiteAsk::token
    bool operator==(const SiteJob&) const = default;
};
struct SiteFailed {  // its own market: an order has come to nothing
    OrderFailed failed;
    bool operator==(const SiteFailed&) const = default;
};
struct SiteOrder {  // the other market: where the job is to run
    Order order;
    uint64_t number = 0;
    bool operator==(const SiteOrder&) const = default;
};
struct SiteNote {  // the other market: what it pays there
    JobNote note;
    Cause no;  // it is not taken, or kept no longer, and why
    uint64_t number = 0;
    bool operator==(const SiteNote&) const = default;
};

// A job pays so much per CPU-hour at another site at most.
Money most_elsewhere(const JobTerms& terms);
// finish, cost or stay
const char* preference(const SiteWish& wish);
// Says what of a job's terms another site hears, and looks at: the rest is its user's business
// alone.
JobTerms told_to_sites(const JobTerms& terms);

struct SiteOffer {
    uint64_t number = 0;
    Cause why;                         // there is no offer, and why; empty: it is one
    Money price;                       // per CPU-hour
    int64_t speed = 0;                 // of the machine
    Nanos starts_in;                   // so long it takes to clear the place
    Nanos held_for;                    // so long the place is kept and the price holds; 0: neither
    std::vector<SiteRoom> rooms = {};  // for SiteAsk::parts
    bool operator==(const SiteOffer&) const = default;
};

// Its user wants this of an offer.
struct OfferWish {
    bool cheapest = false;  // the least that the whole job costs; else the earliest end
    Money most;             // per CPU-hour
    Nanos work;             // on a standard machine; 0: not known, and an hour is taken for it
    // It runs: an offer must be worth the move.
    std::optional<SiteMove> move = {};
};

inline SiteStay stay_of(const SiteOffer& offer) {
    return {offer.price, offer.speed, offer.starts_in};
}

struct SiteAndOffer {
    std::string site;
    SiteOffer offer;
};

// Whether it is one at that price; `pays`: and, of a job that runs, worth the move.
bool is_usable(const SiteAndOffer& one, const OfferWish& wish, bool pays);

// Says which of them is the best; nullopt: none is one at that price. Of those that are equally
// early it is the cheapest, of those equally cheap the earliest, and among equals each is as likely
// as another by the seed. Their order means nothing, a site's name neither.
std::optional<size_t> best_offer(std::span<const SiteAndOffer> offers, const OfferWish& wish,
                                 uint64_t seed);

// Checks a SiteWish::names.
inline constexpr size_t wished_sites_max = 16;
Status check_site_wish(std::string_view names);
bool is_wished(const SiteWish& wish, std::string_view site);

}  // namespace souk
