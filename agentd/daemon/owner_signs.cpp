// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/owner_signs.hpp"

#include <fcntl.h>
#include <poll.h>

#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {

constexpr size_t programs_max = 256;  // processes that are followed at once

std::string name_of(pid_t pid) {
    auto name = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/comm");
    if (!name || name->empty()) return {};
    name->pop_back();
    return *name;
}

std::string words_of(const LoginSession& s) {
    return s.user + " is logged in (session " + s.id + (s.seat.empty() ? "" : " at " + s.seat) +
           ")";
}

}  // namespace

const char* to_string(OwnerSign sign) {
    switch (sign) {
        case OwnerSign::load: return "load";
        case OwnerSign::wait: return "wait";
        case OwnerSign::session: return "session";
        case OwnerSign::program: return "program";
        case OwnerSign::pressure: return "pressure";
        case OwnerSign::before: return "before";
        case OwnerSign::input: return "input";
        case OwnerSign::network: return "network";
    }
    MUST(false);
}

void OwnerSigns::watch(const OwnerSignsWish& wish) {
    if (wish == wish_) return;
    wish_ = wish;
    trouble_.clear();
    watch_sessions();
    watch_pressure();
    watch_input();
    programs_.clear();
    find_programs();
}

void OwnerSigns::lacks(const char* what, const Error& why) {
    trouble_ += (trouble_.empty() ? "" : "; ") + std::string(what) + ": " + why.message;
    log_.warning("the owner's use is not seen by that", {{"sign", what}, {"WHY", why}});
}

// -------------------------------------------------------------------------------------------------
// sessions

void OwnerSigns::watch_sessions() {
    sessions_watch_.close();
    sessions_.reset();
    active_.clear();
    if (wish_.sessions == OwnerSignsWish::Sessions::none) return;
    auto opened = LoginSessions::open();
    if (!opened) return lacks("owner_sessions", opened.error());
    sessions_ = std::make_unique<LoginSessions>(std::move(*opened));
    auto watched = loop_.watch(sessions_->fd(), sessions_->events(), [this](short) {
        sessions_->flush();
        see_sessions();
    });
    if (!watched) return lacks("owner_sessions", watched.error());
    sessions_watch_ = std::move(*watched);
    see_sessions();
}

void OwnerSigns::see_sessions() {
    active_ = LoginSessions::active(accounts_);
    if (wish_.sessions == OwnerSignsWish::Sessions::local)
        std::erase_if(active_, [](const LoginSession& s) { return s.remote || s.seat.empty(); });
    if (!active_.empty()) used_(OwnerSign::session, words_of(active_.front()));
}

// -------------------------------------------------------------------------------------------------
// pressure

void OwnerSigns::watch_pressure() {
    resources_.clear();
    if (wish_.pressure.ns <= 0) return;
    for (const char* const name : {"cpu", "memory", "io"}) {
        auto opened = PressureWatch::open(name, wish_.pressure, directory_, open_.device);
        if (!opened) {
            lacks("owner_pressure_ms", opened.error());
            continue;
        }
        auto resource = std::make_unique<Resource>(Resource{std::move(*opened), Watch()});
        const auto see = [this, r = resource.get()](short) {
            const Nanos stalled = r->pressure.over();
            if (stalled.ns > 0)
                used_(OwnerSign::pressure, "his processes stood still for " +
                                               std::to_string(stalled.ns / 1'000'000) +
                                               " ms for want of " + r->pressure.resource());
        };
        auto watched = loop_.watch(resource->pressure.fd(), POLLPRI, see);
        if (!watched) {
            lacks("owner_pressure_ms", watched.error());
            continue;
        }
        resource->watch = std::move(*watched);
        resources_.push_back(std::move(resource));
    }
}

// -------------------------------------------------------------------------------------------------
// terminals and input devices

void OwnerSigns::watch_input() {
    input_watch_.close();
    input_.reset();
    if (!wish_.input) return;
    auto opened = InputWatch::open(*wish_.input, open_.inputs);
    if (!opened) return lacks("owner_input", opened.error());
    input_ = std::make_unique<InputWatch>(std::move(*opened));
    see_input();
}

// At once, and then with the next second: a mouse that is moved tells a thousand times in it.
void OwnerSigns::see_input() {
    const std::string device = input_->used();
    if (!device.empty()) {
        input_watch_.close();
        return used_(OwnerSign::input, device + " is in use");
    }
    auto watched = loop_.watch(input_->fd(), POLLIN, [this](short) { see_input(); });
    if (!watched) return lacks("owner_input", watched.error());
    input_watch_ = std::move(*watched);
}

// -------------------------------------------------------------------------------------------------
// programs

bool OwnerSigns::is_guest(pid_t pid) const {
    const auto groups = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/cgroup");
    const size_t at = groups ? groups->rfind("0::/") : std::string::npos;
    if (at == std::string::npos) return false;
    const size_t end = groups->find('\n', at);
    return (groups->substr(at + 3, end - at - 3) + "/").starts_with("/" + group_ + "/");
}

void OwnerSigns::began(pid_t pid) {
    if (programs_.contains(pid) || programs_.size() >= programs_max) return;
    auto process = Pidfd::open(pid);
    if (!process) return;  // it has ended
    const std::string name = name_of(pid);
    if (!wish_.programs.contains(name) || is_guest(pid)) return;
    auto ended = loop_.watch(process->get(), POLLIN, [this, pid](short) { programs_.erase(pid); });
    if (!ended) return;
    programs_.emplace(pid, Running{std::move(*process), std::move(*ended), name});
    used_(OwnerSign::program, "program " + name + " runs (process " + std::to_string(pid) + ")");
}

void OwnerSigns::find_programs() {
    if (wish_.programs.empty()) return;
    const auto all = list_dir(AT_FDCWD, "/proc");
    if (!all) return;
    for (const std::string& entry : *all)
        if (const auto pid = whole_number<pid_t>(entry);
            pid && wish_.programs.contains(name_of(*pid)))
            began(*pid);
}

void OwnerSigns::tick(bool look) {
    if (look) find_programs();
    if (!active_.empty()) used_(OwnerSign::session, words_of(active_.front()));
    if (input_) see_input();
    if (!programs_.empty()) {
        const auto& [pid, running] = *programs_.begin();
        used_(OwnerSign::program,
              "program " + running.name + " runs (process " + std::to_string(pid) + ")");
    }
    for (const auto& r : resources_) r->pressure.begin();
}

}  // namespace souk
