// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/criu_beside.hpp"

#include <poll.h>

namespace souk {
namespace {
constexpr Nanos put_away_limit = Nanos::from_s(2);  // of CRIU, what is its own after a restore
}

Status CriuBeside::start(CriuTool& tool, const CriuStart& how) {
    TRY_ASSIGN(session_, CriuSession::start(tool, how));
    TRY_ASSIGN(Fd process, duplicate(session_.pidfd().get()));
    started_watch_.close();  // of one before it, which may still be there
    started_ = Pidfd(std::move(process), session_.pidfd().pid());
    TRY_ASSIGN(started_watch_, loop_.watch(started_.get(), POLLIN, [this](short) { ended(); }));
    TRY_ASSIGN(watch_, loop_.watch(session_.fd(), POLLIN, [this](short) { readable(); }));
    return {};
}

void CriuBeside::readable() {
    // With its last event the session has closed its socket; the watch goes before the fd is used
    // again.
    const std::vector<CriuEvent> events = session_.on_readable();
    if (!session_) watch_.close();
    for (const CriuEvent& e : events) {
        event_(e);
        if (e.kind == CriuEventKind::resumed) return;  // the rest is not this cell's any more
    }
}

void CriuBeside::within(Nanos limit, std::function<void()> late) {
    limit_ = loop_.after(limit, std::move(late));
}

void CriuBeside::ended() {
    started_watch_.close();
    started_ = {};
    if (const auto then = std::exchange(then_, nullptr)) then();
}

void CriuBeside::kill() {
    if (session_) session_.kill();
}

void CriuBeside::forget() {
    watch_.close();
    session_ = CriuSession();
}

void CriuBeside::close() {
    limit_.cancel();
    then_ = nullptr;
    forget();
}

void CriuBeside::let_go() {
    watch_.close();
    last_ = std::exchange(session_, CriuSession());
    if (last_) {  // else it has said its last word
        auto watch = loop_.watch(last_.fd(), POLLIN, [this](short) {
            (void)last_.on_readable();
            if (!last_) last_watch_.close();
        });
        if (watch) last_watch_ = std::move(*watch);
    }
    // The job is its child until it ends: nobody else would hear of the job's end.
    last_limit_ = loop_.after(put_away_limit, [this] {
        last_.kill();  // of no effect if it has ended
        last_watch_.close();
        last_ = CriuSession();
    });
}

}  // namespace souk
