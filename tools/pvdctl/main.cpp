// SPDX-License-Identifier: GPL-2.0-or-later
// pvdctl: what this node offers on the market, for its owner.
#include <string_view>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/units.hpp"
#include "tools/common/ctl.hpp"
#include "tools/common/paths.hpp"
#include "tools/pvdctl/guests.hpp"
#include "tools/pvdctl/history.hpp"
#include "tools/pvdctl/status.hpp"

namespace souk::tools {
namespace {

Result<CtlQuestion> parse_set(std::span<char*> words) {
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

Result<CtlQuestion> parse_words(std::span<char*> words) {
    const std::string_view verb = words.empty() ? "" : words[0];
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
    if (verb == "set") return parse_set(words);
    if (verb == "unset") {
        const std::string_view name = words.size() == 2 ? words[1] : "";
        for (const std::string_view known :
             {"price", "memory", "speed", "cpus", "frames", "market"})
            if (name == known) return CtlQuestion{"provider-unset", {std::string(name)}, nullptr};
        return fail("unset: one of price, memory, speed, cpus, frames, market is wanted");
    }
    if (verb == "market") {
        const std::string_view word = words.size() == 2 ? words[1] : "";
        if (word != "on" && word != "off") return fail("market: on or off is wanted");
        if (word == "off")
            return CtlQuestion{"provider-market", {"off", "wait"}, provider_left_text};
        return CtlQuestion{"provider-market", {"on"}, nullptr};
    }
    return fail(
        verb.empty()
            ? "a verb is missing: status, guests, history, pause, resume, set, unset or market"
            : "'" + std::string(verb) +
                  "' is not a verb: status, guests, history, pause, resume, set, unset or "
                  "market");
}

int run(int argc, char** argv) {
    return run_ctl(
        {{"pvdctl",
          "[options] status | guests [ID] | history [N] | pause | resume | set NAME VALUE | unset "
          "NAME "
          "| market on|off",
          "Shows and sets what a node offers on the market.",
          {},
          "\nWhat is set here holds over the configuration, also after agentd was started again, "
          "until it is unset.\n",
          true,
          {
              {"status",
               "on the market or not, reservation price, what guests pay, what would take it"},
              {"guests [ID]",
               "what its machines hold right now of each guest and each job of this home, or all "
               "of one (root)"},
              {"history [N]",
               "how long it took, each time that the owner came back, until CPUs, memory and "
               "machine "
               "were his; what was promised, and what was missed (the newest 20)"},
              {"pause", "all guests stand still in memory now, and pay nothing, until resume"},
              {"resume", "they go on"},
              {"set price N", "reservation price per CPU-hour"},
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
         parse_words,
         wire::find_agentd,
         true},
        argc, argv);
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
