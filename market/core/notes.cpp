// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/notes.hpp"

#include <algorithm>

#include "market/core/bill.hpp"

namespace souk::market {

namespace {
constexpr Nanos note_pace = Nanos::from_s(1);  // between two notes to one provider
}  // namespace

void Notes::send(const Texts& texts, Job& job, Nanos now, Outputs& out) {
    const Node* home = texts.home_of(job);
    if (!home || !home->connected) return;
    const bool settled = job.phase() == JobPhase::finished;
    const Reason why = settled ? Reason() : texts.reason(job);
    std::string text = why.text();
    const Nanos ends = job.record.contract->is_sold() ? job.record.contract->end : Nanos{};
    if (!job.note_due && !settled && text == job.noted_comment &&
        job.record.price == job.noted_price && ends == job.noted_ends)
        return;
    job.note_due = false;
    job.noted_comment = text;
    job.noted_price = job.record.price;
    job.noted_ends = ends;
    JobNote note{job.id(), job.record.price, bill::cost(job, now), std::move(text), settled};
    if (const User& user = *job.user; user.is_counted() && job.noted_day.micro >= 0) {
        note.day_limit = user.account_ends_first()
                             ? std::max(Money{1}, user.funded)
                             : user.record.limits.spend_per_day.value_or(Money{});
        note.day_left = user.left();
        note.day_cost = job.noted_day;
    }
    note.place_ends = ends;
    if (!why.empty()) note.code = to_string(why.code);
    out.send.push_back({job.id().home, std::move(note)});
}

void Notes::send(const Texts& texts, std::map<NodeName, Node>& nodes, Nanos now, Outputs& out) {
    for (Job* const job : jobs_.take()) send(texts, *job, now, out);
    for (const Node* const node : nodes_.take())
        later_.insert(
            {node->connected ? std::max(now, node->noted_at + note_pace) : now, node->id()});
    for (; !later_.empty() && later_.begin()->first <= now; later_.erase(later_.begin())) {
        const auto it = nodes.find(later_.begin()->second);
        if (it == nodes.end()) continue;  // it was forgotten
        Node& node = it->second;
        if (!node.connected || !node.record.has_report) continue;
        const ProviderNote note = texts.prices(node);
        if (note == node.noted) continue;
        node.noted = note;
        node.noted_at = now;
        out.send.push_back({node.record.node, note});
    }
    for (Send& said : std::exchange(said_, {})) {
        const auto to = nodes.find(said.node);
        if (to != nodes.end() && to->second.connected) out.send.push_back(std::move(said));
    }
}

}  // namespace souk::market
