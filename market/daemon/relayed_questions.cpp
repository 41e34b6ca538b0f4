// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/relayed_questions.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace souk {

namespace {

constexpr size_t relayed_max = 1'024;

}  // namespace

Status RelayedQuestions::pass(uint64_t connection, const wire::CtlRequest& request,
                              const std::string& who, wire::Channel& channel) {
    const auto theirs = std::ranges::count_if(
        open_, [&](const auto& question) { return question.second.who == who; });
    if (open_.size() >= relayed_max || static_cast<size_t>(theirs) >= each_max_)
        return fail(CauseCode::too_many, "too many questions to " + who + " are under way");
    const uint64_t number = next_++;
    wire::CtlRequest question = request;
    question.request = number;
    TRY(channel.send(wire::frame::ctl_request, wire::pack(question)));
    Question& asked = open_[number];
    asked = {connection, request.request, who, {}};
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
    connections_.send(asked.connection, reply);
}

void RelayedQuestions::lost(const std::string& who) {
    std::vector<uint64_t> lost;
    for (const auto& [number, asked] : open_)
        if (asked.who == who) lost.push_back(number);
    for (const uint64_t number : lost) refuse(number, "the connection to " + who + " broke");
}

}  // namespace souk
