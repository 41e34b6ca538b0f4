// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/ticket_desk.hpp"

#include "market/wire/codec.hpp"

namespace souk {

Result<TicketDesk> TicketDesk::open(std::string dir) {
    TicketDesk desk(std::move(dir));
    TRY_ASSIGN(desk.list_, trust::load_ticket_list(desk.dir_));
    if (desk.list_) {
        TRY_ASSIGN(desk.keys_, trust::TicketKeys::parse(desk.list_->keys));
    } else {
        TRY_ASSIGN(desk.keys_, trust::load_ticket_keys(desk.dir_));
    }
    return desk;
}

Status TicketDesk::told(const wire::TicketKeys& word, const trust::Key& issuer, Nanos now,
                        Nanos unix) {
    TRY(word.list.empty() ? take_unsigned(word.keys) : take(word.list, issuer));
    calendar_ = word.now - now;
    behind_ = word.now - unix;
    has_time_ = true;
    return {};
}

Status TicketDesk::take(const std::string& list, const trust::Key& issuer) {
    TRY_ASSIGN(trust::TicketList told, trust::parse_ticket_list(list, issuer));
    TRY_ASSIGN(auto keys, trust::TicketKeys::parse(told.keys));
    const bool same = list_ && told == *list_;
    // Signed by another authority since, it is kept anew: souk-root reads it by that (agentd/who).
    if (same && list == text_) return {};
    if (!same && list_ && told.number <= list_->number)
        return fail("a list of ticket keys with the number " + std::to_string(told.number) +
                    ", and this node has taken another one with " + std::to_string(list_->number));
    TRY(trust::save_ticket_list(dir_, list));
    text_ = list;
    keys_ = std::move(keys);
    list_ = std::move(told);
    return {};
}

Status TicketDesk::take_unsigned(const std::string& text) {
    if (list_)
        return fail(
            "a list of ticket keys that is not signed, and this node has taken one that the "
            "market has signed");
    TRY_ASSIGN(auto keys, trust::TicketKeys::parse(text));
    keys_ = std::move(keys);
    if (text == text_) return {};
    TRY(trust::save_ticket_keys(dir_, text));
    text_ = text;
    return {};
}

Warrant TicketDesk::warrant(const GuestCommand& c, const trust::Revocations& revoked, Nanos now,
                            Nanos unix) const {
    Warrant w;
    w.now = has_time_ ? now + calendar_ : unix;
    w.uid = c.spec.launch.uid;
    if (c.ticket.empty()) return w;
    const auto open = [&]() -> Result<Ticket> {
        TRY_ASSIGN(const std::string_view body, keys_.open(c.ticket));
        TRY_ASSIGN(Ticket ticket, wire::unpack<Ticket>(body));
        for (const std::string& key : ticket.keys)
            if (const auto it = revoked.keys.find(key); it != revoked.keys.end())
                return fail("the ticket names " + it->second + ", whose key was revoked");
        return ticket;
    };
    if (auto ticket = open())
        w.ticket = std::move(*ticket);
    else
        w.trouble = ticket.error().message;
    return w;
}

}  // namespace souk
