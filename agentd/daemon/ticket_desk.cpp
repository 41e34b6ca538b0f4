// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/ticket_desk.hpp"

#include "market/wire/codec.hpp"

namespace souk {

Result<TicketDesk> TicketDesk::open(std::string dir) {
    TicketDesk desk(std::move(dir));
    TRY_ASSIGN(desk.keys_, trust::load_ticket_keys(desk.dir_));
    return desk;
}

Status TicketDesk::told(const wire::TicketKeys& word, Nanos now, Nanos unix) {
    TRY_ASSIGN(auto keys, trust::TicketKeys::parse(word.keys));
    calendar_ = word.now - now;
    behind_ = word.now - unix;
    has_time_ = true;
    keys_ = std::move(keys);
    if (word.keys == text_) return {};
    TRY(trust::save_ticket_keys(dir_, word.keys));
    text_ = word.keys;
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
