// SPDX-License-Identifier: GPL-2.0-or-later
// Claims: what a home says of the places of its jobs, held against what this market ordered. A
// report is a claim: its phase says which nodes the job takes room on, and each of them needs
// backing. The home's own node backs what its home says. Another node backs it where the market has
// ordered the job there, or says itself that it has that copy of the job: so a market that lost its
// records believes homes and nodes together. Pure functions of one job and what nodes said; part of
// Market.
#pragma once

#include "kernel/base/result.hpp"
#include "market/core/book.hpp"

namespace souk::market::claims {

// The places that a phase is about.
struct Relation {
    bool room_where = false, room_to = false;  // it takes room there
    bool lies_where = false;                   // its image is there, and takes none
};
Relation relation_of(const JobReport& report);

// Errors: `node` speaks for a job that is not its own, for a user who is none, or leaves out where
// a job is that is somewhere.
Status sound(const NodeName& node, const JobReport& report);

// A job is of one gang for good, in one role, and has one address: what its first report said of
// that goes on to hold.
void keep_ties(JobReport& report, const JobReport& before);

// A job that has a place holds what it was ordered there with, whatever its home says since: its
// CPUs and named resources, and at least so much memory.
void keep_size(JobReport& report, const JobReport& before);

// The bytes that the texts and lists of a report take. A home that has taken all that it may has
// the reports of its jobs shortened: texts for people to their beginning, the list of its places to
// its newest entries, and what a job asks for stays as it was where it would be longer.
size_t bytes_of(const JobReport& report);
void shorten(JobReport& report, const JobReport& before);

// The market has ordered it there. The newest few orders count: a home may carry one out late, or
// take the job back to where it came from.
void ordered(Job& job, const Node& node);
// Its home says that this order has come to nothing.
void came_to_nothing(Job& job, const Node& node);
bool is_ordered(const Job& job, const Node& node);
// The same, or it is the job's home.
bool may_be_at(const Job& job, const NodeName& name, const Book& book);

// The node's own word on a copy that it has. It is kept in the job's stay there; without one (`job`
// is null, or did not come there as far as is known) at the node, which keeps so many.
inline constexpr size_t said_max = 4'096;
void heard(Node& node, const Job* job, const JobUse& use);
// The first node on which the job takes room and which could have told of it, and has not; null:
// there is none.
const Node* place_without_word(const Job& job, const Book& book);

// Whether each place of its newest report is backed; a place that its node confirms counts as
// ordered from then on.
bool back(Job& job, const Book& book);

}  // namespace souk::market::claims
