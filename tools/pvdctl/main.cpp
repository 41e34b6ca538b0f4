// SPDX-License-Identifier: GPL-2.0-or-later
// pvdctl: what this node offers on the market, for its owner.
#include <optional>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/units.hpp"
#include "tools/common/ctl.hpp"
#include "tools/common/nearest.hpp"
#include "tools/common/paths.hpp"
#include "tools/pvdctl/earnings.hpp"
#include "tools/pvdctl/guests.hpp"
#include "tools/pvdctl/history.hpp"
#include "tools/pvdctl/rules.hpp"
#include "tools/pvdctl/status.hpp"

namespace souk::tools {
namespace {

struct Options {
    std::optional<std::string> floor;
};

Result<CtlQuestion> parse_set(std::span<char*> words, const std::optional<std::string>& floor) {
    if (words.size() == 3 && std::string_view(words[1]) == "price" &&
        std::string_view(words[2]) == "auto") {
        if (!floor) return fail("set price auto: --floor N is wanted, the least that you take");
        return CtlQuestion{"provider-price", {"auto", *floor}, nullptr};
    }
    if (floor) return fail("--floor is for set price auto");
    if (words.size() != 3)
        return fail("set: a name (price, memory, speed, cpus or frames) and a value are wanted");
    const std::string_view key = words[1], value = words[2];
    if (key == "price") {
        if (const auto price = parse_money(value); !price) return wrap("set price", price.error());
    } else if (key == "memory") {
        const auto mb = parse_size_mb(value, 1, int64_t{1} << 40);
        if (!mb) return wrap("set memory", mb.error());
        return CtlQuestion{"provider-set", {std::string(key), std::to_string(*mb)}, nullptr};
    } else if (key == "speed" || key == "cpus") {
        const int64_t max = key == "speed" ? 1'000'000 : 65'536;
        if (const auto number = parse_whole(value, 1, max); !number)
            return wrap("set " + std::string(key), number.error());
    } else if (key != "frames") {
        return fail("set: '" + std::string(key) +
                    "' is not one of price, memory, speed, cpus, frames");
    }
    return CtlQuestion{"provider-set", {std::string(key), std::string(value)}, nullptr};
}

constexpr const char* verbs =
    "status, watch, guests, history, frames, price, share, limits, why, earnings, forecast, evict, "
    "ban, "
    "allow, pause, resume, set, unset or market";

std::vector<std::string> known_verbs() {
    std::vector<std::string> all;
    std::string word;
    for (const char* c = verbs;; ++c) {
        if (*c >= 'a' && *c <= 'z') {
            word += *c;
            continue;
        }
        if (!word.empty() && word != "or") all.push_back(word);
        word.clear();
        if (*c == 0) return all;
    }
}

Result<CtlQuestion> parse_words(std::span<char*> words, const Options& options) {
    const std::string_view verb = words.empty() ? "" : words[0];
    if (options.floor && verb != "set") return fail("--floor is for set price auto");
    if (verb == "frames") return parse_frames(words);
    if (verb == "price") return parse_price(words);
    if (verb == "share") return parse_share(words);
    if (verb == "evict" || verb == "ban" || verb == "allow") return parse_guest_rule(words);
    if (verb == "earnings" || verb == "forecast") return parse_earnings(words);
    if (verb == "watch") {
        if (words.size() > 1)
            return fail(std::string("watch: unexpected argument '") + words[1] + "'");
        CtlQuestion question{"provider-status", {}, watch_text};
        question.every = Nanos::from_s(1);
        return question;
    }
    if (verb == "limits" || verb == "why") {
        if (words.size() > 1)
            return fail(std::string(verb) + ": unexpected argument '" + words[1] + "'");
        return verb == "why" ? CtlQuestion{"provider-why", {}, owner_why_text}
                             : CtlQuestion{"provider-limits", {}, limits_text};
    }
    if (verb == "status") {
        if (words.size() > 1)
            return fail(std::string("status: unexpected argument '") + words[1] + "'");
        return CtlQuestion{"provider-status", {}, provider_status_text};
    }
    if (verb == "guests") {
        if (words.size() > 2)
            return fail(std::string("guests: unexpected argument '") + words[2] + "'");
        if (words.size() == 1) return CtlQuestion{"guests", {}, guests_text};
        TRY_ASSIGN(const JobId id, parse_job_id(words[1]));
        return CtlQuestion{"guests", {id.text()}, guest_text};
    }
    if (verb == "pause" || verb == "resume") {
        if (words.size() > 1)
            return fail(std::string(verb) + ": unexpected argument '" + words[1] + "'");
        return CtlQuestion{"provider-" + std::string(verb), {}, nullptr};
    }
    if (verb == "history") {
        if (words.size() > 2)
            return fail(std::string("history: unexpected argument '") + words[2] + "'");
        if (words.size() == 1) return CtlQuestion{"provider-history", {}, provider_history_text};
        if (const auto number = parse_whole(words[1], 1, 1'000); !number)
            return wrap("history", number.error());
        return CtlQuestion{"provider-history", {words[1]}, provider_history_text};
    }
    if (verb == "set") return parse_set(words, options.floor);
    if (verb == "unset") {
        const std::string_view name = words.size() == 2 ? words[1] : "";
        for (const std::string_view known : {"price", "memory", "speed", "cpus", "frames", "zone",
                                             "curve", "warning", "share", "market"})
            if (name == known) return CtlQuestion{"provider-unset", {std::string(name)}, nullptr};
        return fail(
            "unset: one of price, memory, speed, cpus, frames, zone, curve, warning, share, market "
            "is wanted");
    }
    if (verb == "market") {
        const std::string_view word = words.size() == 2 ? words[1] : "";
        if (word != "on" && word != "off") return fail("market: on or off is wanted");
        if (word == "off")
            return CtlQuestion{
                "provider-market",   {"off", "wait"}, provider_left_text, {}, nullptr, {},
                {"provider-status"}, leaving_text};
        return CtlQuestion{"provider-market", {"on"}, nullptr};
    }
    return fail(
        (verb.empty() ? "a verb is missing: " : "'" + std::string(verb) + "' is not a verb: ") +
        std::string(verbs) + did_you_mean(verb, known_verbs()));
}

// Long: the list of its verbs.
int run(int argc, char** argv) {
    Options options;
    return run_ctl(
        {{"pvdctl",
          "[options] status | watch | guests [ID] | history [N] | frames [VERB VALUE] | price "
          "[curve TEXT] "
          "| share [TEXT] | limits | why | earnings [DAYS] | forecast | evict ID | ban "
          "user|program NAME | allow "
          "user|program|job NAME | pause "
          "| resume | set NAME VALUE | unset NAME | market on|off",
          "Shows and sets what a node offers on the market.",
          {{0, "floor", "N", "with set price auto: the least that is ever asked",
            [&](const char* text) -> Status {
                if (const auto floor = parse_money(text); !floor) return wrap("", floor.error());
                options.floor = text;
                return {};
            }}},
          "\nWhat is set here holds over the configuration, also after agentd was started again, "
          "until it is unset.\n",
          true,
          {
              {"status",
               "on the market or not, reservation price, what guests pay, what would take it"},
              {"watch", "a line whenever that is another, until Ctrl-C"},
              {"guests [ID]",
               "what its machines hold right now of each guest and each job of this home, or all "
               "of one (root)"},
              {"history [N]",
               "how long it took, each time that the owner came back, until CPUs, memory and "
               "machine "
               "were his; what was promised, and what was missed (the newest 20)"},
              {"frames", "when the node is on the market by itself, one frame a line"},
              {"frames add FRAME", "one more, such as mon-fri 18:00-8:00; it overlaps no other"},
              {"frames remove FRAME", "one less, by its number or as it is written"},
              {"frames zone ZONE", "the time zone of frames and prices, such as Europe/Berlin"},
              {"frames warning TIME",
               "so long before a frame ends, the users of guests are told (0: they are not)"},
              {"price", "what is asked now, and at each hour of the week"},
              {"price curve TEXT",
               "what is asked at some hours: 'mon-fri 8:00-18:00 = 40; daily 22:00-6:00 = 5'"},
              {"share", "what guests get at most, and when"},
              {"share TEXT",
               "guests get no more: 'here = 0.5 cpus, 50% memory; mon-fri 8:00-18:00 = 75%'; all: "
               "all that is offered"},
              {"limits", "what guests get at most, what is promised, and who may not come"},
              {"why", "why it asks what it asks, and is on the market or off it"},
              {"earnings [DAYS]", "what it has earned each day (30), by receipts of the market"},
              {"forecast",
               "what the prices of the last 30 days would have paid at these and other prices"},
              {"evict ID",
               "this job leaves now, is frozen to the disk or, if it cannot be, ends; it does not "
               "come again (allow job ID)"},
              {"ban user NAME",
               "no jobs of that user, of any home or REALM/NAME; who is here goes"},
              {"ban program NAME", "no jobs that were started with that program; likewise"},
              {"allow user NAME", "they may come again; also program NAME and job ID"},
              {"pause", "all guests stand still in memory now, and pay nothing, until resume"},
              {"resume", "they go on"},
              {"set price N", "reservation price per CPU-hour"},
              {"set price auto --floor N", "it is learned from the market's prices, at least N"},
              {"set memory SIZE", "memory offered: 512M, 4G, or a number of MB"},
              {"set speed N", "speed reported; 100 is standard"},
              {"set cpus N", "CPUs offered"},
              {"set frames TEXT", "when the node is on the market by itself (such as 'always')"},
              {"market on", "offer the node"},
              {"market off",
               "leave the market; waits until no guest runs here any more, and names who is left"},
              {"unset NAME", "back to what agentd's configuration says (a name of set, or market)"},
          }},
         "the node (default $SOUK_NODE, then this machine's)",
         "its agentd's socket",
         "print the daemon's JSON",
         [&](std::span<char*> words) { return parse_words(words, options); },
         wire::find_agentd,
         true},
        argc, argv);
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
