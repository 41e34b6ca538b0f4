// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/who/seen_list.hpp"

#include <algorithm>

#include "kernel/base/number.hpp"
#include "kernel/sys/store/sha256.hpp"

namespace souk::who {
namespace {

constexpr std::string_view heading = "souk ticket list seen 1\n";
constexpr size_t digest_digits = 64;

// Takes a line that begins so off the text, and returns the rest of that line.
Result<std::string_view> said(std::string_view& rest, std::string_view begins) {
    const size_t end = rest.find('\n');
    if (!rest.starts_with(begins) || end == rest.npos)
        return fail("no line \"" + std::string(begins) + "...\"");
    const std::string_view value = rest.substr(begins.size(), end - begins.size());
    rest.remove_prefix(end + 1);
    return value;
}

bool is_digest(std::string_view word) {
    return word.size() == digest_digits && word.find_first_not_of("0123456789abcdef") == word.npos;
}

}  // namespace

SeenList SeenList::of(std::string market, const trust::TicketList& list) {
    return {std::move(market), list.number, sha256_hex(list.keys)};
}

Result<SeenList> SeenList::parse(std::string_view text) {
    if (!text.starts_with(heading)) return fail("no word about a list of ticket keys");
    text.remove_prefix(heading.size());
    SeenList seen;
    TRY_ASSIGN(seen.market, said(text, "market "));
    TRY_ASSIGN(const std::string_view number, said(text, "number "));
    TRY_ASSIGN(seen.keys, said(text, "keys "));
    seen.number = whole_number<uint64_t>(number).value_or(0);
    if (!is_digest(seen.market) || !is_digest(seen.keys) || seen.number == 0 || !text.empty())
        return fail("no word about a list of ticket keys");
    return seen;
}

std::string SeenList::text() const {
    return std::string(heading) + "market " + market + "\nnumber " + std::to_string(number) +
           "\nkeys " + keys + "\n";
}

Status SeenList::check(const SeenList& next) const {
    if (next.market != market || next.number > number || next == *this) return {};
    const std::string its = std::to_string(next.number);
    if (next.number == number)
        return fail("another list with the number " + its + " was believed here");
    return fail("the list with the number " + its + " is older than one that was believed here (" +
                std::to_string(number) + ")");
}

}  // namespace souk::who
