// SPDX-License-Identifier: GPL-2.0-or-later
// NamedRooms: how much is left of named resources (named_resources.hpp), for plans that are made
// without the Allocator: prices from nothing, allocations of others. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// It knows this for each place, and for the market.
class NamedRooms {
  public:
    NamedRooms() = default;
    // One for each place; nobody has taken any.
    NamedRooms(const std::vector<const NamedOffers*>& places, const NamedOffers& licences) {
        Index index;
        for (const NamedOffers* const offers : places) add(*offers, index);
        add(licences, index);
        index.from.push_back(left_.size());
        index_ = std::make_shared<const Index>(std::move(index));
    }
    void take(size_t p, const NamedAmounts& here, const NamedAmounts& licences, int sign = 1) {
        for (const NamedAmount& one : here)
            if (const size_t at = find(p, one.name); at < left_.size())
                left_[at] -= int64_t{sign} * one.count;
        for (const NamedAmount& one : licences)
            if (const size_t at = find(index_->from.size() - 2, one.name); at < left_.size())
                left_[at] -= int64_t{sign} * one.count;
    }
    bool holds(size_t p, const NamedAmounts& here, const NamedAmounts& licences) const {
        const auto has = [&](size_t place, const NamedAmounts& needs) {
            return std::all_of(needs.begin(), needs.end(), [&](const NamedAmount& one) {
                const size_t at = find(place, one.name);
                return at < left_.size() && left_[at] >= one.count;
            });
        };
        return has(p, here) && has(index_->from.size() - 2, licences);
    }

  private:
    // Those of place p are from[p] to from[p + 1]; the last place is the market.
    struct Index {
        std::vector<size_t> from;
        std::vector<uint32_t> names;
    };
    void add(const NamedOffers& offers, Index& index) {
        index.from.push_back(left_.size());
        for (const NamedOffer& offer : offers) {
            index.names.push_back(offer.name);
            left_.push_back(offer.count);
        }
    }
    size_t find(size_t p, uint32_t name) const {
        const auto begin = index_->names.begin() + static_cast<ptrdiff_t>(index_->from[p]),
                   end = index_->names.begin() + static_cast<ptrdiff_t>(index_->from[p + 1]),
                   at = std::lower_bound(begin, end, name);
        return at != end && *at == name ? static_cast<size_t>(at - index_->names.begin())
                                        : left_.size();
    }

    std::shared_ptr<const Index> index_;
    std::vector<int64_t> left_;
};

// The places are the machines of these indexes, without what the guests have that `has` says yes
// to.
template <class Has>
NamedRooms named_left(const Allocator& market, const std::vector<uint32_t>& places, Has&& has) {
    if (market.named_jobs() == 0) return {};
    std::vector<const NamedOffers*> offers;
    offers.reserve(places.size());
    for (const uint32_t m : places) offers.push_back(&market.machines()[m].spec.named);
    NamedRooms rooms(offers, market.licences().all());
    for (size_t p = 0; p < places.size(); ++p)
        for (const Allocator::Guest& g : market.machines()[places[p]].guests)
            if (has(g)) rooms.take(p, market.takes_named(g.job), market.takes_licences(g.job));
    return rooms;
}
// The same for all machines, each at its index.
template <class Has>
NamedRooms named_left(const Allocator& market, Has&& has) {
    std::vector<uint32_t> all(market.machines().size());
    std::iota(all.begin(), all.end(), 0);
    return named_left(market, all, has);
}

}  // namespace souk::market
