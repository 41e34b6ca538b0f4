// SPDX-License-Identifier: GPL-2.0-or-later
// SiteSettlement: how two sites agree on a payment that one has made to the other outside of both
// markets (docs/sites.md). The payer's operator states it, the payee's confirms or refuses it, and
// only then both books have it: neither's word alone changes the other's. The payee decides, also
// when the payer takes its statement back at the same moment. One statement each way is open at
// most.
//
// Each side says all of it in one level (SiteAccount), again at each connection, so that a word
// that is lost or comes twice does nothing: the payer's statement has a number that is used once,
// and the payee's level names the newest number that it has answered. Pure; the desk of marketd
// (market/daemon/site_accounts.hpp) stores it with what it books, in one commit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

inline constexpr size_t settlement_note_bytes_max = 120;

struct SiteStatement {
    uint64_t id = 0;  // 0: none
    Money amount;     // the speaker has paid so much
    std::string note;
    bool withdrawn = false;  // and takes it back, if it is not confirmed yet
    bool operator==(const SiteStatement&) const = default;
};

// A market says this to the other one about all that is between them.
struct SiteAccount {
    uint64_t entries = 0;    // of its book of entries between the two (market/store/site_book.hpp)
    std::string head;        // the hash of the newest; empty: there is none
    Money owed;              // the other owes it so much, by its books; below 0: it owes the other
    SiteStatement states;    // it has paid
    uint64_t answered = 0;   // the newest statement of the other that it has answered
    bool confirmed = false;  // and how
    bool operator==(const SiteAccount&) const = default;
};

struct SiteSettlement {
    SiteStatement ours;    // not answered yet
    SiteStatement theirs;  // likewise
    uint64_t last = 0;     // our newest number
    uint64_t answered = 0;
    bool confirmed = false;
    // This is the newest mark of the other's book that was heard.
    uint64_t entries = 0;
    std::string head;
    bool operator==(const SiteSettlement&) const = default;

    // A payment of the other that is to be booked; below 0: one of ours.
    struct Booking {
        uint64_t id = 0;
        Money paid;
        std::string note;
    };
    // This site's operator says that it has paid. `unix` makes a number that no statement had, also
    // when an older state has come up; it is above `answered_there`, the newest number that the
    // other says to have answered, unless that is none. Errors: no amount, or one is open.
    Status state(Money amount, const std::string& note, Nanos unix, uint64_t answered_there = 0);
    Status withdraw();
    // The other's statement is true. Errors: it has stated no such amount.
    Result<Booking> confirm(Money amount);
    Status refuse();
    // A peer begins with the moment when it became one, so that what it has stated before, to an
    // account that is no more, is not confirmed again.
    static uint64_t number_at(Nanos unix);
    // Whether the other has answered a later statement than the open one of ours, so that an older
    // state of ours, or a newer one of the other, has come up: this is never answered any more.
    bool is_passed(const SiteAccount& word) const {
        return ours.id != 0 && word.answered > ours.id;
    }
    // The other's word has come. Returns what it has confirmed. What is_passed is dropped.
    std::optional<Booking> heard(const SiteAccount& word);
    // Whether its book is one that goes on from what was heard of it; then that is its newest mark.
    bool takes_mark(const SiteAccount& word);
    // Fills in this side's part of the level.
    void say(SiteAccount& word) const;
};

}  // namespace souk
