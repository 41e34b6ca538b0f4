// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_settlement.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/cause.hpp"
#include "market/core/ledger.hpp"
#include "market/core/receipt_mark.hpp"

namespace souk {

namespace {

// Clocks of two sites differ by less, so that a larger number is no moment.
constexpr Nanos clocks_apart_max = Nanos::from_s(86'400);

}  // namespace

uint64_t SiteSettlement::number_at(Nanos unix) {
    return static_cast<uint64_t>(std::max<int64_t>(0, unix.ns / 1'000));
}

Status SiteSettlement::state(Money amount, const std::string& note, Nanos unix,
                             uint64_t answered_there) {
    if (amount.micro <= 0 || amount > market::account_most)
        return fail(CauseCode::invalid, "an amount above 0 is wanted");
    if (ours.id != 0)
        return fail(CauseCode::not_possible,
                    "it has not answered yet whether it has got the last " +
                        format_money(ours.amount) + " (--withdraw takes that back)");
    last = std::max(last + 1, number_at(unix));
    if (answered_there <= number_at(unix + clocks_apart_max))
        last = std::max(last, answered_there + 1);
    ours = {last, amount, note, false};
    return {};
}

Status SiteSettlement::withdraw() {
    if (ours.id == 0) return fail(CauseCode::not_found, "no payment of ours waits for its word");
    ours.withdrawn = true;
    return {};
}

Result<SiteSettlement::Booking> SiteSettlement::confirm(Money amount) {
    if (theirs.id == 0)
        return fail(CauseCode::not_found,
                    "it has not said that it has paid (souk peer settle, "
                    "there)");
    if (amount != theirs.amount)
        return fail(CauseCode::invalid, "it says that it has paid " + format_money(theirs.amount) +
                                            ", not " + format_money(amount));
    const SiteStatement got = std::exchange(theirs, {});
    answered = got.id;
    confirmed = true;
    return Booking{got.id, got.amount, got.note};
}

Status SiteSettlement::refuse() {
    if (theirs.id == 0) return fail(CauseCode::not_found, "it has not said that it has paid");
    answered = std::exchange(theirs, {}).id;
    confirmed = false;
    return {};
}

std::optional<SiteSettlement::Booking> SiteSettlement::heard(const SiteAccount& word) {
    const SiteStatement& s = word.states;
    theirs = {};
    if (s.id > answered && s.withdrawn) {
        answered = s.id;
        confirmed = false;
    } else if (s.id > answered && s.amount.micro > 0 && s.amount <= market::account_most) {
        theirs = s;
    }
    if (is_passed(word)) ours = {};
    if (ours.id == 0 || word.answered != ours.id) return std::nullopt;
    const SiteStatement paid = std::exchange(ours, {});
    if (!word.confirmed) return std::nullopt;
    return Booking{paid.id, Money{-paid.amount.micro}, paid.note};
}

bool SiteSettlement::takes_mark(const SiteAccount& word) {
    if (word.entries < entries || (word.entries == entries && entries > 0 && word.head != head))
        return false;
    // It stands in the entries of this site, so it must be one.
    if (word.entries > 0 && !parse_receipt_mark(ReceiptMark{word.entries, word.head}.text()))
        return false;
    entries = word.entries;
    head = word.entries > 0 ? word.head : "";
    return true;
}

void SiteSettlement::say(SiteAccount& word) const {
    word.states = ours;
    word.answered = answered;
    word.confirmed = confirmed;
}

}  // namespace souk
