// SPDX-License-Identifier: GPL-2.0-or-later
// ReceiptMark: a receipt by its number and its hash, which stands for all before it. Another party
// that has seen the newest one keeps such a mark: an agent of the ledger, a peer of the entries
// between two sites (site_entries.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

struct ReceiptMark {
    static constexpr size_t hash_digits = 64;  // of SHA-256
    uint64_t seq = 0;                          // 0: none
    std::string head;
    std::string text() const;
    bool operator==(const ReceiptMark&) const = default;
};
Result<ReceiptMark> parse_receipt_mark(std::string_view text);

}  // namespace souk
