// SPDX-License-Identifier: GPL-2.0-or-later
// The parts that several messages of the market hold: fill_ and take_ as in
// kernel/wire/codec_parts.hpp. Codec files alone include it.
#pragma once

#include <vector>

#include "kernel/wire/codec_parts.hpp"
#include "market/core/messages.hpp"
#include "market/wire/market.pb-c.h"

namespace souk::wire {

// the newest of a job's places
inline constexpr size_t places_max = 1000;

Pb__Peer* fill_peer(const Peer& peer, Arena& arena);
Pb__JobTerms* fill_terms(const JobTerms& terms, Arena& arena);
Pb__MoveForecast* fill_forecast(const MoveForecast& forecast, Arena& arena);
MoveForecast take_forecast(const Pb__MoveForecast* m, Check& c);
Pb__JobStats* fill_stats(const JobStats& stats, Arena& arena);
void fill_places(const std::vector<NodeName>& places, size_t& n, char**& out, Arena& arena);
Peer take_peer_or_none(const char* field, const Pb__Peer* peer, Check& check);
JobTerms take_terms(const Pb__JobTerms* terms, Check& check);
JobStats take_stats(const Pb__JobStats* stats, Check& check);
std::vector<NodeName> take_places(size_t n, char* const* places, Check& check);

}  // namespace souk::wire
