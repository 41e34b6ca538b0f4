// SPDX-License-Identifier: GPL-2.0-or-later
// SeenList: which of a market's lists of ticket keys (kernel/trust/ticket_list.hpp) was the newest
// that was believed here. What lies in agentd's files may be an older one, with a key that signs no
// more. As a text:
//
//   souk ticket list seen 1
//   market DIGEST-OF-ITS-ROOT
//   number 1794441600
//   keys SHA-256-OF-THEIR-LINES
//
// The list belongs to that market alone: a node that joins another one believes that one's lists.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/trust/ticket_list.hpp"

namespace souk::who {

struct SeenList {
    static constexpr size_t bytes_max = 4096;
    std::string market;  // of its root's certificate
    uint64_t number = 0;
    std::string keys;

    static SeenList of(std::string market, const trust::TicketList& list);
    static Result<SeenList> parse(std::string_view text);
    std::string text() const;
    // Fails if `next` may not be believed after this one: it is older, or another one with the same
    // number.
    Status check(const SeenList& next) const;
    bool operator==(const SeenList&) const = default;
};

}  // namespace souk::who
