// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/ticket_list.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/trust/signed_text.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view list_heading = "souk ticket list 1\n", number_is = "number ";
constexpr size_t list_bytes_max = 4096;

struct SignedList {
    SignedText text;
    TicketList list;
};

Result<SignedList> parts_of(std::string_view text) {
    SignedList found;
    TRY_ASSIGN(found.text, take_apart(text, list_heading, "list of ticket keys", list_bytes_max));
    std::string_view lines = found.text.lines;
    const auto number = lines.starts_with(number_is)
                            ? whole_number<uint64_t>(take_line(lines).substr(number_is.size()))
                            : std::nullopt;
    if (!number || *number == 0) return fail("a list of ticket keys without a number");
    found.list = {*number, std::string(lines)};
    return found;
}

// Returns nothing if there is no list.
Result<std::optional<std::string>> read_list(const std::string& path) {
    if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
    TRY_ASSIGN(std::string text, read_file(AT_FDCWD, path, list_bytes_max));
    return text;
}

}  // namespace

Result<std::string> sign(const TicketList& list, const Key& issuing) {
    return sign_text(std::string(list_heading) + std::string(number_is) +
                         std::to_string(list.number) + "\n" + list.keys,
                     issuing);
}

Result<TicketList> parse_ticket_list(std::string_view text, const Key& issuing) {
    TRY_ASSIGN(SignedList found, parts_of(text));
    if (!found.text.is_of(issuing))
        return fail("a list of ticket keys that this market has not signed");
    return std::move(found.list);
}

Result<std::string> keep_ticket_list(const std::string& dir, const std::string& keys,
                                     const Key& issuing, Nanos now, bool begins) {
    const std::string path = dir + "/ticket.list";
    TRY_ASSIGN(const auto text, read_list(path));
    TicketList next{static_cast<uint64_t>(std::max<int64_t>(1, now.ns / 1'000'000'000)), keys};
    bool is_good = false;
    if (const auto last = text ? parts_of(*text) : fail("none"); last) {
        is_good = last->list.keys == keys && last->text.is_of(issuing);
        if (is_good && !begins) return *text;
        next.number = std::max(next.number, last->list.number + 1);
    }
    TRY_ASSIGN(std::string made, sign(next, issuing));
    const Status kept = replace_file(path, made, 0644, true);
    if (!kept && is_good) return *text;
    TRY(kept);
    return made;
}

Status save_ticket_list(const std::string& dir, std::string_view text) {
    return replace_file(dir + "/ticket-list", text, 0644, true);
}

Result<std::optional<TicketList>> load_ticket_list(const std::string& dir) {
    const std::string path = dir + "/ticket-list";
    TRY_ASSIGN(const auto text, read_list(path));
    if (!text) return std::nullopt;
    auto found = parts_of(*text);
    if (!found) return wrap(path, found.error());
    return std::move(found->list);
}

}  // namespace souk::trust
