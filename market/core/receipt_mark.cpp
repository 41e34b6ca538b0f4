// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/receipt_mark.hpp"

#include <algorithm>

#include "kernel/base/number.hpp"

namespace souk {

std::string ReceiptMark::text() const { return std::to_string(seq) + ":" + head; }

Result<ReceiptMark> parse_receipt_mark(std::string_view text) {
    ReceiptMark mark;
    std::string_view rest = text;
    const auto seq = take_number<uint64_t>(rest);
    mark.seq = seq.value_or(0);
    mark.head = rest.substr(std::min<size_t>(1, rest.size()));
    const bool hash = mark.head.size() == ReceiptMark::hash_digits &&
                      mark.head.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (seq && rest.starts_with(':') && hash) return mark;
    return fail("'" + std::string(text) +
                "' is not a receipt's number, a colon and its hash, as pvdctl status says them");
}

}  // namespace souk
