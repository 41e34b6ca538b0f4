// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/shutdown_delay.hpp"

#include <fcntl.h>
#include <poll.h>
#include <systemd/sd-bus.h>

#include <utility>

namespace souk {
namespace {

constexpr const char* logind = "org.freedesktop.login1";
constexpr const char* path = "/org/freedesktop/login1";
constexpr const char* manager = "org.freedesktop.login1.Manager";

}  // namespace

Result<std::unique_ptr<ShutdownDelay>> ShutdownDelay::open(Loop& loop, std::string who,
                                                           std::string why, Told told) {
    std::unique_ptr<ShutdownDelay> delay(
        new ShutdownDelay(loop, std::move(who), std::move(why), std::move(told)));
    TRY(delay->begin());
    return delay;
}

ShutdownDelay::~ShutdownDelay() {
    watch_ = {};
    ::sd_bus_slot_unref(call_);
    ::sd_bus_slot_unref(signal_);
    ::sd_bus_close_unref(bus_);
}

Status ShutdownDelay::begin() {
    if (const int error = ::sd_bus_open_system(&bus_); error < 0)
        return fail_errno("the system bus", -error);
    const auto heard = [](sd_bus_message* m, void* self, sd_bus_error*) {
        static_cast<ShutdownDelay*>(self)->signalled(m);
        return 0;
    };
    if (const int error = ::sd_bus_match_signal_async(bus_, &signal_, logind, path, manager,
                                                      "PrepareForShutdown", heard, nullptr, this);
        error < 0)
        return fail_errno("listen to logind", -error);
    TRY(ask());
    TRY_ASSIGN(watch_, loop_.watch(::sd_bus_get_fd(bus_), POLLIN, [this](short) { serve(); }));
    serve();
    return {};
}

Status ShutdownDelay::ask() {
    call_ = ::sd_bus_slot_unref(call_);
    const auto answer = [](sd_bus_message* m, void* self, sd_bus_error*) {
        static_cast<ShutdownDelay*>(self)->answered(m);
        return 0;
    };
    const int error =
        ::sd_bus_call_method_async(bus_, &call_, logind, path, manager, "Inhibit", answer, this,
                                   "ssss", "shutdown", who_.c_str(), why_.c_str(), "delay");
    return error < 0 ? fail_errno("ask logind", -error) : Status{};
}

// Deals with what has come from the bus. What we send goes out when the bus takes it.
void ShutdownDelay::serve() {
    int more = 1;
    while (more > 0) more = ::sd_bus_process(bus_, nullptr);
    if (more < 0) {
        trouble_ = fail_errno("the system bus", -more).value().message;
        watch_ = {};
        return;
    }
    const int events = ::sd_bus_get_events(bus_);
    watch_.set_events(static_cast<short>(events > 0 ? events : POLLIN));
}

void ShutdownDelay::answered(sd_bus_message* reply) {
    int fd = -1;
    if (::sd_bus_message_is_method_error(reply, nullptr)) {
        const sd_bus_error* const error = ::sd_bus_message_get_error(reply);
        trouble_ = error && error->message ? error->message : "logind refuses";
    } else if (::sd_bus_message_read(reply, "h", &fd) >= 0) {
        lock_ = Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));  // the message's own goes with it
        trouble_.clear();
    }
}

void ShutdownDelay::signalled(sd_bus_message* message) {
    int begins = 0;
    if (::sd_bus_message_read(message, "b", &begins) < 0) return;
    if (!begins && !lock_)
        if (const Status asked = ask(); !asked) trouble_ = asked.error().message;
    told_(begins != 0);
}

}  // namespace souk
