// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/capsule_link.hpp"

#include <poll.h>

namespace souk {

Status CapsuleLink::open(Fd connection) {
    watch_.close();
    client_ = CapsuleClient(std::move(connection));
    welcomed_ = false;
    TRY_ASSIGN(watch_, loop_.watch(client_.fd(), POLLIN, [this](short) { readable(); }));
    return {};
}

void CapsuleLink::close() {
    watch_.close();
    client_ = CapsuleClient();
    welcomed_ = false;
}

void CapsuleLink::update_watch() {
    if (watch_)
        watch_.set_events(static_cast<short>(client_.wants_write() ? POLLIN | POLLOUT : POLLIN));
}

void CapsuleLink::readable() {
    if (client_.wants_write()) (void)client_.on_writable();
    auto events = client_.on_readable();
    if (!events) return lose(events.error().message);
    for (CapsuleClient::Event& e : *events) {
        if (!client_) return;
        if (e.kind == InitEventKind::closed) {
            lose("closed");
            continue;
        }
        if (e.kind == InitEventKind::welcome) welcomed_ = true;
        hooks_.event(e);
    }
    hooks_.read();
    update_watch();
}

void CapsuleLink::lose(const std::string& why) {
    close();
    hooks_.lost(why);
}

void CapsuleLink::last_words() {
    constexpr int looks_max = 64;
    for (int i = 0; i < looks_max && client_; ++i) {
        auto events = client_.on_readable();
        if (!events || events->empty()) break;
        for (CapsuleClient::Event& e : *events) {
            if (e.kind == InitEventKind::closed) return close();
            if (e.kind == InitEventKind::output || e.kind == InitEventKind::exited ||
                e.kind == InitEventKind::output_eof || e.kind == InitEventKind::failed)
                hooks_.event(e);
        }
    }
    close();
}

}  // namespace souk
