// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/site_card.hpp"

#include <algorithm>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/trust/revocations.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view kind = "souk-site";
constexpr size_t parts = 4, address_bytes_max = 256;

}  // namespace

std::string SiteCard::text() const {
    return std::string(kind) + "/" + name + "/" + (address.empty() ? "-" : address) + "/" + root;
}

Result<SiteCard> parse_site_card(std::string_view text) {
    std::vector<std::string_view> words;
    for (size_t at = 0; at <= text.size() && words.size() <= parts;) {
        const size_t end = std::min(text.find('/', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    if (words.size() != parts || words[0] != kind)
        return fail(
            "this is no site's card (souk-site/NAME/HOST:PORT/ROOT): "
            "`souk peer card` prints it there");
    SiteCard card{std::string(words[1]), std::string(words[2]), std::string(words[3])};
    if (card.address == "-") card.address.clear();
    if (!valid_site_name(card.name) || card.name == "all")
        return fail(
            "the card's name is none of a site (letters, digits, '.', '_' or '-'; 64 at "
            "most; not 'all')");
    if (card.address.size() > address_bytes_max) return fail("the card's address is too long");
    if (!card.address.empty()) TRY(Address::check_host_port(card.address));
    if (!is_digest(card.root))
        return fail("the card's root is no SHA-256 (64 hexadecimal digits): is it cut off?");
    return card;
}

}  // namespace souk::trust
