// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/pvdctl/status.hpp"

#include "kernel/base/units.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {

std::string lent(const Json& p) {
    const std::string cpus = field(p, "lent_cpus");
    return cpus + (cpus == "1" ? " CPU, " : " CPUs, ") + megabytes(p, "lent_memory_mb");
}

std::string lent_why(const Json& p, const char* holds) {
    const std::string rules = field(p, holds);
    return rules.empty() || rules == "-" ? "all that is offered" : "the share '" + rules + "'";
}

namespace {

// A line for each guest that is here: whether it uses CPUs, and what it holds.
std::string guests_text(const Json& p) {
    if (!p.contains("here")) return {};
    std::string text;
    for (const Json& guest : p.at("here")) {
        const std::string state = field(guest, "state"), memory = megabytes(guest, "memory_mb");
        text += (text.empty() ? "" : "\n") + field(guest, "job") + ": ";
        if (state == "frozen")
            text += "frozen to the disk of this node" +
                    (guest.contains("image") ? "; it " + field(guest, "image") : std::string());
        else if (state == "stopped")
            text += "stopped where it is: no CPU, " + memory + " of memory at most";
        else if (state == "paused")
            text +=
                "paused: no CPU, " + memory + " of memory at most (" + field(guest, "why") + ")";
        else
            text += "runs";
        if (const std::string part = sent(guest); part != "-") text += ", " + part + " sent";
        if (guest.contains("cannot_move")) text += " (" + field(guest, "cannot_move") + ")";
    }
    return text;
}

std::string lent_text(const Json& p) { return lent(p) + ": " + lent_why(p, "share_holds"); }

std::string presence_text(const Json& presence, bool empty) {
    if (field(presence, "here") != "yes") return "none; guests are as offered";
    const std::string guests = field(presence, "guests");
    return "for " + duration(presence, "since_s") + " (" + field(presence, "why") + "); guests " +
           (guests == "leaving"   ? empty ? "are gone: evacuated" : "leave"
            : guests == "stopped" ? "are stopped in memory"
                                  : "are lowered");
}

// And what of the promises to the owner this machine cannot keep.
void add_presence(std::vector<std::pair<std::string, std::string>>& rows, const Json& presence,
                  bool empty) {
    rows.emplace_back("Your use", presence_text(presence, empty));
    if (presence.contains("look_trouble"))
        rows.emplace_back("", "seen each second alone where no guest is in the way: " +
                                  field(presence, "look_trouble"));
    if (presence.contains("give_way_trouble"))
        rows.emplace_back("", "lowered guests keep a CPU until the next tick: " +
                                  field(presence, "give_way_trouble"));
}

// Guests that stand or leave for the owner use nothing of the node.
std::string status_of(const Json& p) {
    const std::string status = field(p, "status");
    const std::string guests = p.contains("presence") ? field(p.at("presence"), "guests") : "";
    if (status != "on market, busy") return status;
    if (field(p, "paused") == "yes" || guests == "stopped")
        return "on market, guests are stopped for you";
    return guests == "leaving" ? "on market, guests leave for you" : status;
}

}  // namespace

Result<std::string> provider_status_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows = {
        {"Status", status_of(p)},
        {"Min Price", field(p, "reserve")},
        {"Curr Price", field(p, "current_price")},
        {"Next Price", field(p, "next_price")},
        {"Earned", field(p, "earned")},
        {"Guests", field(p, "guests")},
        {"Speed", field(p, "speed")},
        {"CPUs", field(p, "cpus")},
        {"Memory", megabytes(p, "memory_mb") + ", " + megabytes(p, "free_mb") + " free"},
        {"Load", percent(p, "load_permille") + ", waiting " + percent(p, "wait_permille") + " (" +
                     field(p, "load_source") + ")"},
    };
    if (p.contains("load_trouble"))
        rows.emplace_back("", "from /proc: " + field(p, "load_trouble"));
    if (p.contains("headroom_permille"))
        rows.emplace_back("Yours", percent(p, "owner_permille") + ", waiting " +
                                       percent(p, "owner_wait_permille") + "; guests may take " +
                                       percent(p, "headroom_permille") + " of the machine");
    if (p.contains("memory_pressure_permille"))
        rows.emplace_back("Memory stalls",
                          percent(p, "memory_pressure_permille") + " of the last 10 s");
    if (p.contains("memory_pressure_trouble"))
        rows.emplace_back("Memory stalls", "not known: " + field(p, "memory_pressure_trouble"));
    if (field(p, "paused") == "yes")
        rows.emplace_back("Paused", "all guests stand in memory (pvdctl resume)");
    if (p.contains("presence")) add_presence(rows, p.at("presence"), field(p, "empty") == "yes");
    if (field(p, "shutting_down") == "yes")
        rows.emplace_back("Switching off", "guests leave before the machine is off");
    if (field(p, "empty") == "yes" && field(p, "on_market") == "no")
        rows.emplace_back("Empty", "you may switch off");
    if (p.contains("share")) rows.emplace_back("Lent", lent_text(p));
    if (p.contains("frames")) rows.emplace_back("Frames", field(p, "frames"));
    if (p.contains("set_by_owner"))
        for (const Json& o : p.at("set_by_owner"))
            rows.emplace_back("Set here", field(o, "name") + " " + field(o, "value") +
                                              "; the configuration says " +
                                              field(o, "configuration") + " (pvdctl unset " +
                                              field(o, "name") + ")");
    if (field(p, "cannot") != "-") rows.emplace_back("Takes no job", field(p, "cannot"));
    if (p.contains("ledger_seen")) rows.emplace_back("Ledger seen", field(p, "ledger_seen"));
    if (p.contains("near_group")) rows.emplace_back("Near", near_text(p));
    for (const Json& name : p.value("of_market", Json::array()))
        rows.emplace_back("Given to nobody",
                          name.get<std::string>() + ": the market has that name itself");
    if (p.contains("restriction")) rows.emplace_back("Restriction", field(p, "restriction"));
    if (p.contains("user")) rows.emplace_back("agentd is", field(p, "user"));
    if (field(p, "market") == "no")
        rows.emplace_back("Market", "not connected: " + field(p, "market_trouble"));
    if (field(p, "memory_waits") == "yes")
        rows.emplace_back("Memory bound", "waits: guests still hold more than is offered");
    std::string text = lines(rows);
    if (field(p, "on_market") == "no")
        if (const std::string guests = guests_text(p); !guests.empty())
            text += "\nLeft are:\n" + guests;
    return text;
}

std::string leaving_text(const Answer& answer, Nanos after) {
    const auto p = parse_object(answer);
    if (!p || !p->contains("here")) return {};
    constexpr size_t named_max = 3;
    std::string parts;
    size_t left = 0, images = 0, named = 0;
    for (const Json& guest : p->at("here")) {
        left += field(guest, "state") != "frozen";
        images += guest.contains("image");
        if (const std::string part = sent(guest); part != "-" && named++ < named_max)
            parts += "; " + field(guest, "job") + ": " + part;
    }
    const auto count = [](size_t n, const char* what) {
        return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
    };
    const std::string what =
        left == 0 && images > 0 ? count(images, "image") : count(left, "guest");
    return field(*p, "node") + ": " + what + " still here, " + human_span(after) + parts;
}

namespace {
const char* empty_words(const Json& p) {
    return field(p, "empty") == "yes" ? "empty: you may switch off" : "no guest is left";
}
}  // namespace

Result<std::string> provider_left_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    std::string text = field(p, "node") + " is off the market; ";
    const std::string guests = guests_text(p);
    return text + (guests.empty() ? empty_words(p) : "left are:\n" + guests);
}

Result<std::string> watch_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    std::string text = field(p, "node") + ": " + field(p, "status") + ", asks " +
                       field(p, "reserve") + ", gets " + field(p, "current_price") + ", guests " +
                       field(p, "guests");
    if (field(p, "paused") == "yes") text += ", paused";
    if (p.contains("presence") && field(p.at("presence"), "here") == "yes")
        text += ", you use it (" + field(p.at("presence"), "cause") + "): guests " +
                field(p.at("presence"), "guests");
    if (p.contains("share") && field(p, "share_holds") != "-" && !field(p, "share_holds").empty())
        text += ", lends " + lent(p);
    if (field(p, "cannot") != "-" && !field(p, "cannot").empty()) text += ", " + field(p, "cannot");
    const std::string guests = guests_text(p);
    return guests.empty() ? text + (field(p, "empty") == "yes" ? ", empty" : "")
                          : text + "\n" + guests;
}

Result<std::string> evicted_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    const std::string guests = guests_text(p);
    return guests.empty() ? "no guest is left on " + field(p, "node")
                          : "on " + field(p, "node") + " are:\n" + guests;
}

}  // namespace souk::tools
