// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/commits.hpp"

#include <cerrno>
#include <utility>

namespace souk {

Result<std::unique_ptr<Commits>> Commits::open(Loop& loop, Log& log, const std::string& directory) {
    const std::string reserve = directory + "/ballast";
    std::unique_ptr<JournalDb> db;
    const auto try_open = [&]() -> Status {
        TRY_ASSIGN(StateDb opened, StateDb::open(directory, {}));
        db = std::make_unique<JournalDb>(std::move(opened), reserve);
        return {};
    };
    Status opened = try_open();
    const bool gave = !opened && opened.error().code == ENOSPC && JournalDb::give_up(reserve);
    if (gave) opened = try_open();
    if (!opened) return tl::unexpected(opened.error());
    if (db->db().log_missing()) log.warning(StateDb::log_missing_text(db->db().path()));
    auto commits = std::make_unique<Commits>(loop, log, directory, std::move(db));
    commits->tell({.committed = {}, .gave_room = gave, .calls = {}}, false);
    return commits;
}

Commits::Commits(Loop& loop, Log& log, std::string directory, std::unique_ptr<JournalDb> db)
    : loop_(loop), log_(log), directory_(std::move(directory)), db_(std::move(db)) {
    db_->journal().take_room(Loop::now());
    loop_.defer([this] { flush(); });  // sets the timer
}

Commits::~Commits() { (void)db_->journal().finish(); }

void Commits::put(const char* kind, const std::string& key, std::string record, Durable when) {
    db_->journal().put(kind, key, std::move(record), when);
    ask_flush();
}

void Commits::erase(const char* kind, const std::string& key, Durable when) {
    db_->journal().erase(kind, key, when);
    ask_flush();
}

Status Commits::read_all(const char* kind, const JournalDb::Read& read) {
    TRY(db_->read_all(kind, read));
    for (const JournalDb::SetAside& a : db_->set_aside())
        if (a.kind == kind)
            log_.error("a record of the state cannot be read, and is set aside",
                       {{"RECORD", a.kind + " " + a.key},
                        {"WHY", a.why},
                        {"do", "see docs/state-on-disk.md; souk doctor lists them"}});
    ask_flush();
    return {};
}

void Commits::forget_aside(const char* kind, const std::string& key) {
    if (!db_->is_aside(kind, key)) return;
    db_->forget_aside(kind, key);
    ask_flush();
}

void Commits::then(std::function<void()> call) {
    db_->journal().then(std::move(call));
    ask_flush();
}

void Commits::ask_flush() {
    if (db_->journal().due()) flush_later();
}

void Commits::flush_later() {
    if (!std::exchange(due_, true)) loop_.defer([this] { flush(); });
}

// A timer set by a deferred function fires when what was queued for sending has left.
void Commits::flush() {
    Journal& journal = db_->journal();
    due_ = false;
    const bool held = journal.holds();
    const Journal::Flushed flushed = journal.flush(Loop::now());
    tell(flushed, held);
    timer_.cancel();
    if (const Nanos next = journal.next(); next != Nanos::never())
        timer_ = loop_.at(next, [this] {
            db_->journal().tick(Loop::now());
            flush_later();
        });
    for (const auto& call : flushed.calls) call();
}

void Commits::tell(const Journal::Flushed& flushed, bool held) {
    if (flushed.gave_room)
        log_.warning("the disk of the state directory is full: its reserve is used up",
                     {{"directory", directory_}});
    if (!flushed.committed)
        log_.limited("disk", Loop::now(), Level::error,
                     "cannot store state: nothing leaves this node until it can",
                     {{"WHY", flushed.committed.error()}});
    const bool holds = db_->journal().holds();
    if (holds == held) return;
    if (held) log_.notice("state can be stored again");
    loop_.hold_sends(holds);
}

}  // namespace souk
