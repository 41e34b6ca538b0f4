// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/ticket_list.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view list_heading = "souk ticket list 1\n", number_is = "number ",
                           list_signed_by = "signature ";
constexpr size_t list_bytes_max = 4096;

struct SignedList {
    TicketList list;
    std::string_view body;
    std::string signature;
};

Result<SignedList> take_apart(std::string_view text) {
    if (text.size() > list_bytes_max) return fail("a list of ticket keys of too many bytes");
    if (!text.starts_with(list_heading)) return fail("this is no list of ticket keys");
    std::string_view rest = text.substr(list_heading.size());
    const size_t number_end = rest.find('\n');
    if (!rest.starts_with(number_is) || number_end == rest.npos)
        return fail("a list of ticket keys without a number");
    const auto number =
        whole_number<uint64_t>(rest.substr(number_is.size(), number_end - number_is.size()));
    if (!number || *number == 0) return fail("a list of ticket keys without a number");
    rest.remove_prefix(number_end + 1);
    const size_t keys_end = rest.find(list_signed_by);
    if (keys_end == rest.npos || rest.back() != '\n')
        return fail("a list of ticket keys without a signature");
    SignedList found{{*number, std::string(rest.substr(0, keys_end))}, {}, {}};
    found.body = text.substr(0, text.size() - rest.size() + keys_end);
    rest.remove_prefix(keys_end + list_signed_by.size());
    rest.remove_suffix(1);
    TRY_ASSIGN(found.signature, from_hex(rest));
    return found;
}

// Nothing: there is none.
Result<std::optional<std::string>> read_list(const std::string& path) {
    if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
    TRY_ASSIGN(std::string text, read_file(AT_FDCWD, path, list_bytes_max));
    return text;
}

}  // namespace

Result<std::string> sign(const TicketList& list, const Key& issuing) {
    std::string text(list_heading);
    text += std::string(number_is) + std::to_string(list.number) + "\n" + list.keys;
    TRY_ASSIGN(const std::string signature, issuing.sign(text));
    return text + std::string(list_signed_by) + hex(signature) + "\n";
}

Result<TicketList> parse_ticket_list(std::string_view text, const Key& issuing) {
    TRY_ASSIGN(SignedList found, take_apart(text));
    if (!issuing.verify(found.body, found.signature))
        return fail("a list of ticket keys that this market has not signed");
    return std::move(found.list);
}

Result<std::string> keep_ticket_list(const std::string& dir, const std::string& keys,
                                     const Key& issuing, Nanos now) {
    const std::string path = dir + "/ticket.list";
    TRY_ASSIGN(const auto text, read_list(path));
    TicketList next{static_cast<uint64_t>(std::max<int64_t>(1, now.ns / 1'000'000'000)), keys};
    if (const auto last = text ? take_apart(*text) : fail("none"); last) {
        if (last->list.keys == keys && issuing.verify(last->body, last->signature)) return *text;
        next.number = std::max(next.number, last->list.number + 1);
    }
    TRY_ASSIGN(std::string made, sign(next, issuing));
    TRY(replace_file(path, made, 0644, true));
    return made;
}

Status save_ticket_list(const std::string& dir, std::string_view text) {
    return replace_file(dir + "/ticket-list", text, 0644, true);
}

Result<std::optional<TicketList>> load_ticket_list(const std::string& dir) {
    const std::string path = dir + "/ticket-list";
    TRY_ASSIGN(const auto text, read_list(path));
    if (!text) return std::nullopt;
    auto found = take_apart(*text);
    if (!found) return wrap(path, found.error());
    return std::move(found->list);
}

}  // namespace souk::trust
