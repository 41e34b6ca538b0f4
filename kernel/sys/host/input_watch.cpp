// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/input_watch.hpp"

#include <fcntl.h>
#include <sys/inotify.h>

#include <cerrno>

namespace souk {
namespace {

constexpr size_t devices_max = 4'096;

bool is_input(std::string_view name) { return name.starts_with("event") || name == "mice"; }
// Tells whether it is a terminal of the machine itself: tty1, ttyS0, hvc0. tty and tty0 stand for
// other terminals, so they do not count.
bool is_terminal(std::string_view name) {
    if (name.starts_with("hvc") || name.starts_with("ttyS") || name.starts_with("ttyAMA"))
        return true;
    return name.starts_with("tty") && name.size() > 3 && name[3] >= '1' && name[3] <= '9';
}
bool is_pseudo(std::string_view name) { return name.find_first_not_of("0123456789") == name.npos; }

void add(int inotify, const std::string& directory, bool (*is_one)(std::string_view),
         std::vector<WatchedInput>& all) {
    const auto names = list_dir(AT_FDCWD, directory);
    if (!names) return;
    for (const std::string& name : *names) {
        if (!is_one(name) || all.size() >= devices_max) continue;
        const std::string path = directory + "/" + name;
        const int number = ::inotify_add_watch(inotify, path.c_str(), IN_ACCESS | IN_DONT_FOLLOW);
        if (number >= 0) all.push_back({number, path});
    }
}

}  // namespace

std::vector<WatchedInput> watch_inputs(int inotify, bool pseudo) {
    std::vector<WatchedInput> all;
    add(inotify, "/dev/input", is_input, all);
    add(inotify, "/dev", is_terminal, all);
    if (pseudo) add(inotify, "/dev/pts", is_pseudo, all);
    return all;
}

Result<InputWatch> InputWatch::open(Which which, WatchInputs add) {
    InputWatch watch(which, std::move(add));
    watch.inotify_ = Fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!watch.inotify_) return fail_errno("inotify_init1", errno);
    for (const char* directory : {"/dev", "/dev/input", "/dev/pts"})
        (void)::inotify_add_watch(watch.inotify_.get(), directory, IN_CREATE | IN_ONLYDIR);
    watch.look_for_devices();
    if (which == Which::local && watch.devices_.empty())
        return fail("this machine has neither a terminal nor an input device");
    return watch;
}

void InputWatch::look_for_devices() {
    (void)::inotify_add_watch(inotify_.get(), "/dev/input", IN_CREATE | IN_ONLYDIR);
    const auto added = add_(inotify_.get(), which_ == Which::all);
    if (!added) return;
    for (const WatchedInput& one : *added) devices_[one.number] = one.path;
}

std::string InputWatch::used() {
    std::string device;
    bool came = false;
    alignas(inotify_event) char buffer[4096];
    ssize_t n = 0;
    while ((n = ::read(inotify_.get(), buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < n;) {
            const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
            at += static_cast<ssize_t>(sizeof *event + event->len);
            came |= (event->mask & (IN_CREATE | IN_Q_OVERFLOW)) != 0;
            const auto found = devices_.find(event->wd);
            if (found == devices_.end()) continue;
            if (event->mask & IN_ACCESS) device = found->second;
            if (event->mask & IN_IGNORED) devices_.erase(found);
        }
    if (came) look_for_devices();
    return device;
}

}  // namespace souk
