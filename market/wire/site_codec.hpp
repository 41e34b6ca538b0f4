// SPDX-License-Identifier: GPL-2.0-or-later
// The messages of the markets of two sites (market/core/site_terms.hpp, site_offer.hpp) as bytes
// and back: as kernel/wire/codec.hpp.
#pragma once

#include "market/core/site_news.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/site_settlement.hpp"
#include "market/core/site_terms.hpp"
#include "market/wire/codec.hpp"

namespace souk::wire {

// clang-format off
#define SOUK_SITE_WORDS(X)                            \
    X(SiteTerms, site_terms, 40, small_bytes)         \
    X(SiteAsk, site_ask, 41, small_bytes)             \
    X(SiteOffer, site_offer, 42, small_bytes)         \
    X(SiteJob, site_job, 44, report_bytes)            \
    X(SiteFailed, site_failed, 45, small_bytes)       \
    X(SiteOrder, site_order, 46, small_bytes)         \
    X(SiteNote, site_note, 47, small_bytes)           \
    X(SiteAccount, site_account, 48, small_bytes)     \
    X(SiteWords, site_words, 57, report_bytes)
// clang-format on

SOUK_SITE_WORDS(SOUK_WIRE_DECLARE)

// Says how long each message on a connection of marketd may be.
constexpr uint32_t marketd_words(FrameType type) {
    SOUK_SITE_WORDS(SOUK_WIRE_BYTES_MAX)
    return market_words(type);
}

// clang-format off
#define SOUK_SITE_TO_MARKET(X)                         \
    X(site, ctl_request, none, "what anybody may see") \
    X(site, ctl_reply, none, "what it was asked")      \
    X(site, site_terms, none, "what it says it lets jobs from here do") \
    X(site, site_ask, none, "a job of its own, by its terms") \
    X(site, site_offer, none, "what it was asked") \
    X(site, site_job, none, "a job of its own that it wants to run here, or that does") \
    X(site, site_failed, none, "orders for such jobs") \
    X(site, site_order, none, "a job from here that was given to it") \
    X(site, site_note, none, "such a job") \
    X(site, site_account, none, "what the two owe each other, and what it has paid") \
    X(site, site_words, none, "what it has heard of sites, which people are shown")
// clang-format on
SOUK_WIRE_ALLOWED(site_to_market, marketd_words, SOUK_SITE_TO_MARKET)

}  // namespace souk::wire
