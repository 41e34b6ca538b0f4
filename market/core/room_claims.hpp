// SPDX-License-Identifier: GPL-2.0-or-later
// RoomClaims: keeps the room that jobs take on nodes, in the counts of nodes and users. A job takes
// room where it is and where it is ordered to. It changes the jobs, nodes and users of the book and
// owns no data. Pure; part of Market.
#pragma once

#include "market/core/admission.hpp"
#include "market/core/book.hpp"
#include "market/core/places.hpp"
#include "market/core/user_days.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class RoomClaims {
  public:
    RoomClaims(Book& book, Places& places, UserDays& days, Admission& admission, WorkList& work)
        : book_(book), places_(places), days_(days), admission_(admission), work_(work) {}

    // To be called when a job's report, order or backing has changed.
    void claim(Job& job);
    // Counts the memory that the job keeps on a node and that nobody else can get (it cannot leave,
    // or nobody can send it to disk), and the memory that goes to whoever wins it. claim() calls
    // it.
    void root(Job& job);

  private:
    void list_at(Job& job, const NodeName& node, bool add);

    Book& book_;
    Places& places_;
    UserDays& days_;
    Admission& admission_;
    WorkList& work_;
};

}  // namespace souk::market
