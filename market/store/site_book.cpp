// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/site_book.hpp"

#include <algorithm>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/store/sha256.hpp"

namespace souk {
namespace {

constexpr size_t entry_hash_digits = ReceiptMark::hash_digits, entry_number_digits = 20;

std::string begin_of(uint32_t account) { return std::to_string(account) + "/"; }

std::string entry_key(uint32_t account, uint64_t number) {
    const std::string digits = std::to_string(number);
    return begin_of(account) + std::string(entry_number_digits - digits.size(), '0') + digits;
}

// The text of a row, behind its hash and the number of the receipt.
Result<std::string_view> text_of(const StateDb::Row& row) {
    std::string_view rest = row.value;
    const bool hashed = rest.size() > entry_hash_digits && rest[entry_hash_digits] == ' ';
    rest.remove_prefix(hashed ? entry_hash_digits + 1 : rest.size());
    const size_t blank = rest.find(' ');
    if (!hashed || blank == rest.npos)
        return fail(CauseCode::unsound, "entry " + row.key + " of other sites is none");
    return rest.substr(blank + 1);
}

}  // namespace

Status SiteBook::know(const std::string& site, uint32_t account) {
    if (const auto it = peers_.find(site); it != peers_.end() && it->second.account == account)
        return {};
    peers_.erase(site);  // nothing is entered behind what cannot be read
    Peer peer;
    peer.account = account;
    const std::string begin = begin_of(account);
    TRY_ASSIGN(const auto newest, db_.before(kind_site_entry, begin + "~", 1));
    if (!newest.empty() && newest[0].key.starts_with(begin)) {
        const StateDb::Row& row = newest[0];
        const size_t digits =
            std::min(row.key.find_first_not_of('0', begin.size()), row.key.size());
        const auto number = whole_number<uint64_t>(row.key.substr(digits));
        if (!number || !text_of(row))
            return fail(CauseCode::unsound, "entry " + row.key + " of other sites is none");
        peer.newest = {*number, row.value.substr(0, entry_hash_digits)};
    }
    peers_.emplace(site, std::move(peer));
    return {};
}

void SiteBook::heard(const std::string& site, const std::string& mark) {
    if (const auto it = peers_.find(site); it != peers_.end()) it->second.heard = mark;
}

void SiteBook::append(const market::Receipt& receipt) {
    for (auto& [site, peer] : peers_) {
        if (of_site(receipt.job.home).site != site && of_site(receipt.node).site != site &&
            receipt.uid != peer.account && receipt.other != peer.account)
            continue;
        auto entry = market::site_entry(receipt, own_, site, peer.account);
        if (!entry) continue;
        entry->number = peer.newest.seq + 1;
        entry->mark = peer.heard;
        if (const auto ids = settles_.find(site);
            receipt.kind == market::Receipt::Kind::settlement && ids != settles_.end()) {
            entry->id = ids->second.front();
            ids->second.erase(ids->second.begin());
            if (ids->second.empty()) settles_.erase(ids);
        }
        const std::string text = site_entry_text(*entry);
        peer.newest = {entry->number, market::next_site_hash(peer.newest.head, text, sha256_hex)};
        records_.put(kind_site_entry, entry_key(peer.account, entry->number),
                     peer.newest.head + " " + std::to_string(receipt.seq) + " " + text);
        changed_.insert(site);
    }
}

ReceiptMark SiteBook::newest(const std::string& site) const {
    const auto it = peers_.find(site);
    return it == peers_.end() ? ReceiptMark{} : it->second.newest;
}

Result<std::vector<std::string>> SiteBook::after(const std::string& site, uint64_t number,
                                                 size_t entries_max) const {
    std::vector<std::string> texts;
    const auto it = peers_.find(site);
    if (it == peers_.end()) return texts;
    const std::string begin = begin_of(it->second.account);
    TRY_ASSIGN(const auto rows,
               db_.after(kind_site_entry, entry_key(it->second.account, number), entries_max));
    for (const StateDb::Row& row : rows) {
        if (!row.key.starts_with(begin)) break;
        TRY_ASSIGN(const std::string_view text, text_of(row));
        texts.emplace_back(text);
    }
    return texts;
}

Result<bool> SiteBook::has_book(uint32_t account) const {
    TRY_ASSIGN(const auto rows, db_.after(kind_site_entry, begin_of(account), 1));
    return !rows.empty() && rows[0].key.starts_with(begin_of(account));
}

}  // namespace souk
