// SPDX-License-Identifier: GPL-2.0-or-later
// Tickets as a guest takes them: the keys that the market tells, what is sealed, the claims. What
// nobody has signed is none; what is admitted is what the ticket says, and once.
#include <cstdlib>
#include <string>

#include "agentd/core/guest_tickets.hpp"
#include "kernel/trust/ticket_key.hpp"
#include "market/wire/codec.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace souk;

struct Market {
    trust::TicketKey key = *trust::TicketKey::make();
    trust::TicketKeys known =
        *trust::TicketKeys::parse("key " + trust::hex(*key.public_half()) + "\n");
};

void keys(std::string_view text) {
    const auto taken = trust::TicketKeys::parse(text);
    one_line(taken);
    if (taken) REQUIRE(taken->size() <= 8 && taken->size() == text.size() / 69);
}

void sealed(std::string_view bytes) {
    static const Market market;
    const auto opened = market.known.open(bytes);
    one_line(opened);
    REQUIRE(!opened);  // nobody has that key
    const std::string good = "souk ticket 1\n" + market.key.name() +
                             *market.key.sign("souk ticket 1\n" + std::string(bytes)) +
                             std::string(bytes);
    REQUIRE(*market.known.open(good) == bytes);
}

void claims(std::string_view bytes) {
    const auto ticket = wire::unpack<Ticket>(bytes);
    one_line(ticket);
    if (!ticket) return;
    REQUIRE(wire::unpack<Ticket>(wire::pack(*ticket)) == *ticket);
    for (const GuestVerb verb :
         {GuestVerb::start, GuestVerb::prepare, GuestVerb::keep, GuestVerb::ship}) {
        const bool ships = verb == GuestVerb::ship;
        GuestTickets tickets(ships ? "n2" : "n3", TicketRule::required);
        GuestCommand command;
        command.id = ticket->id;
        command.verb = verb;
        command.dest = "n3";
        command.epoch = {1};
        command.new_epoch = {2};
        const Warrant warrant{*ticket, "", ticket->issued, ticket->uid};
        const Status may = tickets.admit(ticket->id.home, command, warrant);
        one_line(may);
        if (!may || ticket->id.home == (ships ? "n2" : "n3")) continue;
        REQUIRE(ticket->destination == "n3" && ticket->issued < ticket->expires + ticket_slack);
        REQUIRE(ships ? ticket->source == "n2"
                      : verb == GuestVerb::start || !ticket->source.empty());
        REQUIRE(tickets.mark() == ticket->number);
        if (!ships) REQUIRE(command.cpus == ticket->cpus && command.source == ticket->source);
        command.epoch = command.new_epoch = {9};
        REQUIRE(!tickets.admit(ticket->id.home, command, warrant));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 1) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 3) {
        case 0: keys(bytes); break;
        case 1: sealed(bytes); break;
        default: claims(bytes);
    }
    return 0;
}
