// SPDX-License-Identifier: GPL-2.0-or-later
// RelayedQuestions: questions to this market that somebody else must answer (a node's agentd, the
// market of a peer). They are passed on under numbers of their own, and the answers back. An answer
// counts from whom was asked alone; one that does not come within answer_within is a refusal
// (CauseCode::away). Bounded.
#pragma once

#include <map>
#include <string>

#include "market/daemon/connections.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class RelayedQuestions {
  public:
    // How many may be under way to one of those that are asked: `each_max` of all, `user_max` of
    // one user of one connection.
    RelayedQuestions(Loop& loop, Connections& connections, size_t each_max, size_t user_max)
        : loop_(loop), connections_(connections), each_max_(each_max), user_max_(user_max) {}

    // Passes the question of that connection on. `who`: as people read it, "node n1". `says_user`:
    // it hears who asks. An error: too many are under way, or the channel takes no more.
    Status pass(uint64_t connection, const wire::CtlRequest& request, const std::string& who,
                wire::Channel& channel, bool says_user);
    void answered(const std::string& who, wire::CtlReply reply);
    // Refuses all that `who` was asked.
    void lost(const std::string& who);
    void close() { open_.clear(); }

  private:
    struct Question {
        uint64_t connection = 0, request = 0;
        uint32_t uid = 0;
        std::string who;
        Timer limit;
    };
    void end(uint64_t number, wire::CtlReply reply);
    void refuse(uint64_t number, std::string why);

    Loop& loop_;
    Connections& connections_;
    const size_t each_max_, user_max_;
    std::map<uint64_t, Question> open_;
    uint64_t next_ = 1;
};

}  // namespace souk
