// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/peer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "kernel/base/cause.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/trust/site_card.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/peer_rows.hpp"
#include "tools/common/table.hpp"
#include "tools/common/typed_options.hpp"
#include "tools/souk/invite.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

using tools::Json;
constexpr size_t card_file_bytes_max = 4096;

Result<Json> ask_of_peers(const PeerWords& w, const std::string& verb,
                          const std::vector<std::string>& args = {}) {
    constexpr Nanos patience = Nanos::from_s(5);
    const auto find = [&]() -> Result<std::string> { return wire::find_market(w.socket, ""); };
    TRY_ASSIGN(const auto parts, tools::ask(find, verb, args, patience));
    return tools::parse_object(parts);
}

// The card itself, or the first line of a file that holds it.
Result<trust::SiteCard> card_of(const std::string& word) {
    std::string text = word;
    if (!word.starts_with("souk-site/")) {
        auto file = read_file(AT_FDCWD, word, card_file_bytes_max);
        if (!file) return wrap("a card or a file with one", file.error());
        text = file->substr(0, file->find_first_of("\r\n"));
    }
    return trust::parse_site_card(text);
}

Status peer_card(const PeerWords& w) {
    TRY_ASSIGN(const Json known, ask_of_peers(w, "peer-list"));
    trust::SiteCard card{known.value("site", ""), w.address, known.value("root", "")};
    if (card.root.empty())
        return fail(CauseCode::not_possible,
                    "this market runs without certificates, and its peers could not know it: souk "
                    "setup market");
    if (card.address.empty()) {
        TRY_ASSIGN(card.address, reached_at(known.value("listen", "")));
    }
    if (card.address == "none") card.address.clear();
    TRY(trust::parse_site_card(card.text()));
    return tools::print(card.text());
}

Status peer_add(const PeerWords& w) {
    TRY_ASSIGN(const trust::SiteCard card, card_of(w.card));
    std::string reached = "-";
    if (!card.address.empty()) {
        TRY_ASSIGN(const Address address, Address::resolve(card.address));
        reached = address.text();
    }
    TRY(ask_of_peers(w, "peer-add", {card.text(), reached}));
    return tools::print("site " + card.name + " is a peer of this market; its root is " +
                        card.root +
                        "\nwhen its operator has added this site's card (souk peer card), the two "
                        "connect: souk peer list");
}

Status peer_list(const PeerWords& w) {
    TRY_ASSIGN(const Json known, ask_of_peers(w, "peer-list"));
    if (w.as_json) return tools::print(known.dump());
    tools::Table table({{"Site"}, {"Address"}, {"State"}, {"Since"}, {"Root"}});
    for (const Json& peer : known.value("peers", Json::array()))
        table.add({tools::field(peer, "site"), tools::field(peer, "address"),
                   tools::peer_state(peer), tools::local_time(peer, "since_unix_s"),
                   tools::field(peer, "root").substr(0, 16)});
    TRY(tools::print("this site is " + tools::field(known, "site")));
    return tools::print(table.text());
}

std::string names_text(const Json& terms, const char* key) {
    std::string all;
    for (const Json& name : terms.value(key, Json::array()))
        if (name.is_string()) all += (all.empty() ? "" : ", ") + name.get<std::string>();
    return all;
}

// "at most 8 CPUs; users ada, bob; 20:00-08:00; at least 5 per CPU-hour"
std::string terms_text(const Json& terms) {
    const int64_t cpus = terms.value("most_cpus", int64_t{0});
    if (cpus == 0) return "nothing may come";
    std::string text = "at most " + std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs");
    for (const char* key : {"users", "projects"})
        if (const std::string names = names_text(terms, key); !names.empty())
            text += std::string("; ") + key + " " + names;
    if (terms.contains("hours")) text += "; " + tools::field(terms, "hours");
    if (terms.contains("least"))
        text += "; at least " + tools::field(terms, "least") + " per CPU-hour";
    if (terms.contains("credit")) text += "; may owe " + tools::field(terms, "credit") + " at most";
    return text;
}

Status peer_terms(const PeerWords& w) {
    std::vector<std::string> words = {w.site};
    const bool any = !(w.users + w.projects + w.hours + w.least + w.credit).empty();
    if (w.none && (any || w.most_cpus > 0))
        return fail("--none lets nothing come, and goes with no other term");
    if (!w.none && w.most_cpus == 0)
        return fail(
            "--most-cpus is missing: how many CPUs all its jobs may have together "
            "(--none: nothing may come)");
    words.push_back("most-cpus=" + std::to_string(w.most_cpus));
    const std::pair<const char*, const std::string&> more[] = {{"users=", w.users},
                                                               {"projects=", w.projects},
                                                               {"hours=", w.hours},
                                                               {"least=", w.least},
                                                               {"credit=", w.credit}};
    for (const auto& [key, value] : more)
        if (!value.empty()) words.push_back(key + value);
    TRY_ASSIGN(const Json set, ask_of_peers(w, "peer-terms", words));
    return tools::print("jobs from site " + w.site + ": " +
                        terms_text(set.value("terms", Json::object())));
}

std::string statement_text(const Json& s) {
    std::string text = tools::field(s, "amount");
    if (s.contains("note")) text += " (" + tools::field(s, "note") + ")";
    return s.value("withdrawn", false) ? text + ", taken back" : text;
}

void add_money(const Json& peer, std::vector<std::pair<std::string, std::string>>& rows) {
    if (!peer.contains("owes")) return;
    const std::string claim = tools::owes_text(peer, "owes_by_its_word");
    rows.emplace_back("By our books", tools::owes_text(peer, "owes"));
    rows.emplace_back("By its word", claim.empty() ? "it has not said" : claim);
    if (peer.contains("we_paid"))
        rows.emplace_back("We have paid", statement_text(peer["we_paid"]) +
                                              ": it has not said whether that has come");
    if (peer.contains("it_paid"))
        rows.emplace_back("It has paid", "it says: " + statement_text(peer["it_paid"]) +
                                             "; --confirm or --refuse that (souk peer settle)");
}

Status peer_settle(const PeerWords& w) {
    const int words = !w.amount.empty() + !w.confirm.empty() + w.refuse + w.withdraw;
    if (words != 1 || (w.amount.empty() && !w.note.empty()))
        return fail(
            "one of --amount (perhaps with --note), --confirm, --refuse and --withdraw "
            "says what became of a payment");
    std::vector<std::string> args = {w.site};
    if (!w.amount.empty())
        args.insert(args.end(), {"pay", w.amount, w.note});
    else if (!w.confirm.empty())
        args.insert(args.end(), {"confirm", w.confirm});
    else
        args.emplace_back(w.refuse ? "refuse" : "withdraw");
    TRY_ASSIGN(const Json done, ask_of_peers(w, "peer-settle", args));
    return tools::print(tools::field(done, "message"));
}

Status peer_status(const PeerWords& w) {
    TRY_ASSIGN(const Json known, ask_of_peers(w, "peer-list"));
    for (const Json& peer : known.value("peers", Json::array())) {
        if (peer.value("site", "") != w.site) continue;
        if (w.as_json) return tools::print(peer.dump());
        std::vector<std::pair<std::string, std::string>> rows = {
            {"Site", w.site},
            {"Root", tools::field(peer, "root")},
            {"Address", tools::field(peer, "address")},
            {"Peer since", tools::local_time(peer, "added_unix_s")},
            {"State", tools::peer_state(peer)},
            {"So since", tools::local_time(peer, "since_unix_s")}};
        if (peer.contains("trouble")) rows.emplace_back("Last call", tools::field(peer, "trouble"));
        rows.emplace_back("Its jobs here", terms_text(peer.value("terms", Json::object())));
        rows.emplace_back("Ours there", peer.contains("told")
                                            ? "it says: " + terms_text(peer["told"])
                                            : "it has not said");
        rows.emplace_back("Here of it", tools::field(peer, "guests") + " jobs of " +
                                            tools::field(peer, "guest_cpus") + " CPUs");
        rows.emplace_back("There of ours", tools::field(peer, "lent") + " jobs");
        add_money(peer, rows);
        rows.emplace_back("Asked it", tools::field(peer, "asked_it") + " questions");
        rows.emplace_back("It asked", tools::field(peer, "it_asked") + " questions, of which " +
                                          tools::field(peer, "refused") + " were refused");
        return tools::print(tools::lines(rows));
    }
    return fail(CauseCode::not_found, "there is no peer " + w.site + " (souk peer list)");
}

Status peer_remove(const PeerWords& w) {
    return ask_of_peers(w, "peer-remove", {w.site}).map([](auto&&) {});
}

int ended_as(const Status& status) { return status ? 0 : complain(status.error()); }

}  // namespace

tools::CommandLine peer_line(PeerWords& w) {
    const auto socket = option(0, "socket", w.socket, tools::any_text(), "marketd's socket");
    const tools::Option as_json = {0, "json", nullptr, "as JSON", tools::set_flag(w.as_json)};
    const std::vector<tools::Argument> site = {{"SITE", "", tools::set_text(w.site)}};
    return {
        .tool = "souk peer",
        .summary = "the other sites that this market has as peers",
        .commands = {
            {.tool = "souk peer card",
             .summary = "what another site's operator adds to have this one as a peer",
             .options = {option(0, "address", w.address, tools::any_text(),
                                "HOST:PORT at which this market is reached from there, or none "
                                "(default: as it listens)"),
                         socket},
             .run = [&w] { return ended_as(peer_card(w)); }},
            {.tool = "souk peer add",
             .summary = "that site is a peer from now on, or is reached at another address",
             .options = {socket},
             .arguments = {{"CARD", "as souk peer card prints it there, or a file that holds it",
                            tools::set_text(w.card)}},
             .run = [&w] { return ended_as(peer_add(w)); }},
            {.tool = "souk peer remove",
             .summary = "that site is a peer no more, at once",
             .options = {socket},
             .arguments = site,
             .run = [&w] { return ended_as(peer_remove(w)); }},
            {.tool = "souk peer terms",
             .summary = "what jobs from that site may do here: nothing until this is said",
             .options = {option(0, "most-cpus", w.most_cpus, tools::whole(1, 65'536),
                                "so many CPUs all its jobs may have together"),
                         option(0, "users", w.users, tools::any_text(),
                                "only jobs of these users there: NAME[,NAME...] (default: of any)"),
                         option(0, "projects", w.projects, tools::any_text(),
                                "only jobs that these projects there pay for"),
                         option(0, "hours", w.hours, tools::any_text(),
                                "only in these hours here, as an owner's time frames: 20:00-08:00"),
                         option(0, "least", w.least, tools::any_text(),
                                "nothing is offered below this price per CPU-hour"),
                         option(0, "credit", w.credit, tools::any_text(),
                                "that site may owe so much: then nothing more comes, and its jobs "
                                "go home, until it has paid (default: without a bound)"),
                         {0, "none", nullptr, "nothing may come", tools::set_flag(w.none)},
                         socket},
             .arguments = site,
             .run = [&w] { return ended_as(peer_terms(w)); }},
            {.tool = "souk peer settle",
             .summary = "a payment between the two sites, which each side's operator says",
             .options =
                 {option(0, "amount", w.amount, tools::any_text(), "we have paid them so much"),
                  option(0, "note", w.note, tools::any_text(), "with --amount: what for, one line"),
                  option(0, "confirm", w.confirm, tools::any_text(),
                         "so much has come, as they say: both books have it now"),
                  {0, "refuse", nullptr, "what they say has not come", tools::set_flag(w.refuse)},
                  {0, "withdraw", nullptr, "take back what we said, if not confirmed yet",
                   tools::set_flag(w.withdraw)},
                  socket},
             .arguments = site,
             .run = [&w] { return ended_as(peer_settle(w)); }},
            {.tool = "souk peer list",
             .summary = "the peers, and which are connected",
             .options = {as_json, socket},
             .run = [&w] { return ended_as(peer_list(w)); }},
            {.tool = "souk peer status",
             .summary = "all about one peer",
             .options = {as_json, socket},
             .arguments = site,
             .run = [&w] { return ended_as(peer_status(w)); }}}};
}

}  // namespace souk
