// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/relayed_questions.hpp"

#include <utility>
#include <vector>

#include "market/daemon/market_trust.hpp"

namespace souk {

namespace {

constexpr size_t relayed_max = 1'024;
constexpr size_t reply_beside = 64 << 10;  // bytes of an answer beside its JSON, and to spare

}  // namespace

Status RelayedQuestions::pass(uint64_t connection, const wire::CtlRequest& request,
                              const std::string& who, wire::Channel& channel, bool says_user) {
    size_t all = 0, own = 0;
    for (const auto& [number, q] : open_) {
        if (q.who != who) continue;
        ++all;
        own += q.connection == connection && q.uid == request.uid;
    }
    if (open_.size() >= relayed_max || all >= each_max_ || own >= user_max_)
        return fail(CauseCode::too_many, "too many questions to " + who + " are under way");
    const uint64_t number = next_++;
    wire::CtlRequest question = request;
    question.request = number;
    if (!says_user) question.uid = MarketTrust::nobody;
    TRY(channel.send(wire::frame::ctl_request, wire::pack(question)));
    Question& asked = open_[number];
    asked = {connection, request.request, request.uid, who, {}};
    asked.limit = loop_.after(answer_within, [this, number, who] {
        refuse(number, who + " did not answer within " +
                           std::to_string(answer_within.ns / 1'000'000'000) + " s");
    });
    return {};
}

void RelayedQuestions::answered(const std::string& who, wire::CtlReply reply) {
    const uint64_t number = reply.request;
    const auto it = open_.find(number);
    if (it != open_.end() && it->second.who == who) end(number, std::move(reply));
}

void RelayedQuestions::refuse(uint64_t number, std::string why) {
    wire::CtlReply reply;
    reply.error = {CauseCode::away, std::move(why)};
    end(number, std::move(reply));
}

void RelayedQuestions::end(uint64_t number, wire::CtlReply reply) {
    const auto it = open_.find(number);
    if (it == open_.end()) return;
    const Question asked = std::move(it->second);
    open_.erase(it);
    reply.request = asked.request;
    if (!connections_.has(asked.connection)) return;
    // An answer of others ends no connection of an own node.
    if (reply.json.size() + reply_beside > connections_.at(asked.connection).channel->room()) {
        reply.ok = false;
        reply.json.clear();
        reply.error = Cause(CauseCode::too_many, "too much waits for you to read it: ask again");
    }
    connections_.send(asked.connection, reply);
}

void RelayedQuestions::lost(const std::string& who) {
    std::vector<uint64_t> lost;
    for (const auto& [number, asked] : open_)
        if (asked.who == who) lost.push_back(number);
    for (const uint64_t number : lost) refuse(number, "the connection to " + who + " broke");
}

}  // namespace souk
