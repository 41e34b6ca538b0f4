// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/config_owner.hpp"

#include <sstream>

#include "agentd/core/owner_names.hpp"

namespace souk {

using namespace settings;

namespace {

// A longer name is cut as the kernel cuts it.
Status read_programs(const std::string& text, std::set<std::string>& programs) {
    constexpr size_t name_max = 15, programs_max = 64;
    std::istringstream words(text);
    for (std::string word; words >> word;) programs.insert(word.substr(0, name_max));
    if (programs.size() > programs_max)
        return fail("owner_programs: at most " + std::to_string(programs_max) + " names");
    return {};
}

}  // namespace

// Long: a table.
void OwnerKeys::add(Config& c, Settings& all) {
    const std::vector<std::string> ends = {"stop", "kill"};
    const std::vector<std::string> who_is_there = {"none", "local", "all"};
    const std::vector<std::string> returns = {"nothing", "lower", "stop", "leave"};
    const Settings some = {
        {"shutdown_wait_s", seconds(c.shutdown_wait, 0, 3'600),
         "How long a shutdown of this machine waits until its guests have left (where there is "
         "logind, whose InhibitDelayMaxSec bounds it too). 0: not at all.",
         "\"1m\""},
        {"leave_s", seconds(c.policy.leave, 1, 86'400),
         "A guest that still runs here so long after the owner wants the machine is frozen to "
         "disk.",
         "\"2m\""},
        {"leave_mb_per_s", number(c.leave_mb_per_s, 0, 1 << 20),
         "So many MB a second of disk and network guests take together that are frozen to disk or "
         "sent away while the owner uses the machine, so that he does not notice: less than half "
         "of a gigabit link, or of a hard disk. More where a promise to him (free_memory_s, "
         "empty_s) would be missed, or what leaves would take longer than five minutes. A guest "
         "that runs until it is moved is not held back. 0: no limit.",
         "20"},
        {"immovable", one_of(immovable, ends),
         "What becomes of a guest that cannot be frozen to disk: it stands still in memory until "
         "it may go on (stop), or ends after immovable_s (kill).",
         "\"kill\""},
        {"immovable_s", seconds(c.policy.stand, 0, 86'400),
         "How long such a guest stands before it ends, with immovable = \"kill\".", "\"1h\""},
        {"owner_return", one_of(on_return, returns),
         "What becomes of guests while the owner uses the machine (docs/owner.md), at most: "
         "nothing, they get what he leaves of CPUs, disks and memory (lower), they stand still in "
         "memory from owner_stop_s on (stop), and from owner_leave_s on they leave (leave).",
         "\"leave\""},
        {"owner_cpu_percent", number(c.owner_cpu_percent, 0, 100),
         "The owner uses the machine when processes that are no guests run so much of one CPU. 0: "
         "that is not looked at.",
         "50"},
        {"owner_wait_ms", milliseconds(c.owner_wait, 0, 10'000),
         "Or when one of them has waited so long for a CPU. 0: that is not looked at.", "50"},
        {"owner_sessions", one_of(owner_sessions, who_is_there),
         "Or while such a login session is in use: none, those at a seat of the machine (local), "
         "or "
         "those from elsewhere as well (all).",
         "\"local\""},
        {"owner_input", one_of(owner_input, who_is_there),
         "Or when somebody types or moves a mouse: at the machine itself (local), or in any window "
         "or ssh session as well (all). The kernel tells that, and not what.",
         "\"all\""},
        {"owner_programs", text(owner_programs),
         "Or while one of these programs runs that is no guest's, by the first 15 bytes of their "
         "names, parted by spaces.",
         "\"firefox blender\""},
        {"owner_pressure_ms", milliseconds(c.owner_signs.pressure, 0, 1'000),
         "Or when processes that are no guests stood still so long of a second for want of a CPU, "
         "of memory or of disks, as the kernel's pressure stall information says; 0: that is not "
         "looked at.",
         "200"},
        {"owner_network_mb_per_s", number(c.owner_network_mb_per_s, 0, 1 << 20),
         "Or when they send and receive so many MB a second together, over networks that leave the "
         "machine; agentd's own control group does not count. 0: that is not looked at.",
         "5"},
        {"owner_stop_s", seconds(c.presence.stop, 0, 86'400),
         "How long the owner has used the machine when guests are stopped in memory, with "
         "owner_return = \"stop\" or \"leave\". Not before owner_leave_s: they only leave.",
         "\"2s\""},
        {"owner_free_mb", number(c.owner_free_mb, 0, int64_t{1} << 40),
         "How much of the machine's memory, in MB, is to be free while the owner uses it. When "
         "less "
         "is, guests that stand in memory leave, as many as that needs: to another node, or to the "
         "disk. So they do when programs wait for memory a tenth of the time. 0: not for that.",
         "2048", "a twentieth of what the machine has"},
        {"owner_leave_s", seconds(c.presence.leave, 0, 86'400),
         "How long the owner has used the machine when guests are to leave, with owner_return = "
         "\"leave\".",
         "\"10s\""},
        {"free_cpu_ms", milliseconds(c.promise.free_cpu, 0, 60'000),
         "What the owner is promised when he comes back: so long after the first sign, guests have "
         "no more of the CPUs than he leaves. pvdctl history says how it was each time, also with "
         "0 "
         "(nothing is promised).",
         "100"},
        {"free_memory_s", seconds(c.promise.free_memory, 0, 86'400),
         "Likewise: no guest holds memory.", "90"},
        {"empty_s", seconds(c.promise.empty, 0, 86'400),
         "Likewise: no guest of another home is here, nor its image: the machine may be switched "
         "off.",
         "\"5m\""},
        {"owner_away_s", seconds(c.presence.away, 1, 86'400),
         "How long nothing shows that the owner uses the machine until guests are as before.",
         "\"15m\""},
    };
    all.insert(all.end(), some.begin(), some.end());
}

Status OwnerKeys::take(Config& c) const {
    c.policy.kill = immovable == "kill";
    using Return = OwnerUsePolicy::Return;
    c.presence.on_return = on_return == "leave"   ? Return::leave
                           : on_return == "stop"  ? Return::stop
                           : on_return == "lower" ? Return::lower
                                                  : Return::nothing;
    using Sessions = OwnerSignsWish::Sessions;
    c.owner_signs.sessions = owner_sessions == "all"     ? Sessions::all
                             : owner_sessions == "local" ? Sessions::local
                                                         : Sessions::none;
    if (owner_input != "none")
        c.owner_signs.input =
            owner_input == "all" ? InputWatch::Which::all : InputWatch::Which::local;
    TRY(check_owner_names(c.owners));
    return read_programs(owner_programs, c.owner_signs.programs);
}

}  // namespace souk
