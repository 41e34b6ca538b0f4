// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerSigns: what shows, beside load, that the owner uses this node: login sessions that are in
// use, terminals and input devices, processes of programs that he names, and pressure on CPUs,
// memory or disks that guests alone do not make. The kernel and logind tell it; nothing is polled,
// but for programs where BPF is not there. Owned by OwnerPresence, which is told of each sign at
// once, and asks each second what lasts.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernel/base/account.hpp"
#include "kernel/sys/host/input_watch.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/login_sessions.hpp"
#include "kernel/sys/host/pressure.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// A sign that the owner uses the machine.
enum class OwnerSign : uint8_t { load, wait, session, program, pressure, before, input, network };
const char* to_string(OwnerSign sign);

struct OwnerSignsWish {
    enum class Sessions : uint8_t { none, local, all } sessions = Sessions::none;
    std::set<std::string> programs = {};  // names as of /proc/PID/comm
    Nanos pressure = {};                  // of a second; 0: none is looked at
    std::optional<InputWatch::Which> input = {};
    bool operator==(const OwnerSignsWish&) const = default;
};

// Opens devices that this daemon may not open itself.
struct OwnerSignsOpen {
    OpenDevice device = open_device;
    WatchInputs inputs = watch_inputs;
};

class OwnerSigns {
  public:
    using Used = std::function<void(OwnerSign sign, const std::string& why)>;
    // `group` of the guests ("souk/n1"), and its `directory` of cgroup v2; empty: there is none.
    OwnerSigns(Loop& loop, Log& log, const Accounts& accounts, std::string group,
               std::string directory, Used used, OwnerSignsOpen open = {})
        : loop_(loop),
          log_(log),
          accounts_(accounts),
          group_(std::move(group)),
          directory_(std::move(directory)),
          used_(std::move(used)),
          open_(std::move(open)) {}

    // From now on these. What this machine does not tell is logged, and trouble() says it.
    void watch(const OwnerSignsWish& wish);
    // A program that he names has begun, as the kernel says.
    void began(pid_t pid);
    // Tells again what lasts. look: programs are looked for, as nobody tells of them.
    void tick(bool look);
    const std::string& trouble() const { return trouble_; }

  private:
    struct Running {
        Pidfd process;
        Watch ended;
        std::string name;
    };
    struct Resource {
        PressureWatch pressure;
        Watch watch;
    };
    void watch_sessions();
    void see_sessions();
    void watch_pressure();
    void watch_input();
    void see_input();
    void find_programs();
    bool is_guest(pid_t pid) const;
    void lacks(const char* what, const Error& why);

    Loop& loop_;
    Log& log_;
    const Accounts& accounts_;  // who has logged in
    const std::string group_, directory_;
    Used used_;
    const OwnerSignsOpen open_;
    OwnerSignsWish wish_;
    std::unique_ptr<LoginSessions> sessions_;
    Watch sessions_watch_;
    std::vector<LoginSession> active_;
    std::map<pid_t, Running> programs_;
    std::vector<std::unique_ptr<Resource>> resources_;
    std::unique_ptr<InputWatch> input_;
    Watch input_watch_;
    std::string trouble_;
};

}  // namespace souk
