// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/journal.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk {
namespace {

constexpr Nanos later_at_most = Nanos::from_s(1), retry_pause = Nanos::from_s(1),
                room_pause = Nanos::from_s(10), scrub_pause = Nanos::from_s(10);

RecordName name_of(std::string_view kind, std::string_view key) {
    return {std::string(kind), std::string(key)};
}

}  // namespace

const char* to_string(Durable when) {
    switch (when) {
        case Durable::now: return "now";
        case Durable::soon: return "soon";
        case Durable::later: return "later";
    }
    MUST(false);
}

void Journal::put(std::string_view kind, std::string_view key, std::string record, Durable when) {
    ask();
    RecordName name = name_of(kind, key);
    if (when == Durable::soon) {
        soon_waits_ = true;
        const auto [older, is_new] = soon_.try_emplace(std::move(name));
        if (!is_new) {  // what follows may rely on it
            changes_[older->first] = std::move(older->second);
            commit_due_ = true;
        }
        older->second = std::move(record);
        return;
    }
    soon_.erase(name);
    changes_[std::move(name)] = std::move(record);
    (when == Durable::now ? commit_due_ : later_waits_) = true;
}

void Journal::erase(std::string_view kind, std::string_view key, Durable when) {
    ask();
    RecordName name = name_of(kind, key);
    soon_.erase(name);
    changes_[std::move(name)] = std::nullopt;
    erases_wait_ = true;
    (when == Durable::now ? commit_due_ : later_waits_) = true;
}

void Journal::then(Call call) {
    ask();
    then_.push_back(std::move(call));
}

void Journal::after_erases(Call call) {
    if (!erases_wait_) return then(std::move(call));
    after_erases_.push_back(std::move(call));
}

const std::optional<std::string>* Journal::noted(std::string_view kind,
                                                 std::string_view key) const {
    const RecordName name = name_of(kind, key);
    for (const Changes* noted : {&soon_, &changes_})
        if (const auto it = noted->find(name); it != noted->end()) return &it->second;
    return nullptr;
}

Journal::Flushed Journal::flush(Nanos now) {
    Flushed flushed;
    flush_due_ = false;
    if (commit_due_) flushed.committed = commit(now, flushed);
    holds_ = !flushed.committed;
    retry_at_ = holds_ ? now + retry_pause : Nanos::never();
    if (holds_) return flushed;
    if (soon_waits_ && soon_at_ == Nanos::never()) soon_at_ = now;
    if (later_waits_ && later_at_ == Nanos::never()) later_at_ = now + later_at_most;
    flushed.calls.insert(flushed.calls.end(), std::make_move_iterator(then_.begin()),
                         std::make_move_iterator(then_.end()));
    then_.clear();
    return flushed;
}

Status Journal::commit(Nanos now, Flushed& flushed) {
    if (!changes_.empty()) {
        Status committed = store_->commit(changes_);
        if (!committed && store_->give_room()) {
            flushed.gave_room = true;
            room_at_ = now + room_pause;
            committed = store_->commit(changes_);
        }
        if (!committed) return committed;
    }
    changes_.clear();
    if (erases_wait_ && store_->leaves_traces() && scrub_at_ == Nanos::never())
        scrub_at_ = now + scrub_pause;
    commit_due_ = erases_wait_ = later_waits_ = false;
    later_at_ = Nanos::never();
    flushed.calls = std::exchange(after_erases_, {});
    return {};
}

Nanos Journal::next() const {
    return std::min(room_at_, holds_ ? retry_at_ : std::min({soon_at_, later_at_, scrub_at_}));
}

void Journal::tick(Nanos now) {
    if (soon_at_ <= now && !holds_) take_soon();
    if (later_at_ <= now && !holds_) {
        later_at_ = Nanos::never();
        commit_due_ = true;
        ask();
    }
    if (holds_ && retry_at_ <= now) flush_due_ = true;
    if (room_at_ <= now) take_room(now);
    if (scrub_at_ <= now && !holds_)
        scrub_at_ = store_->scrub() ? Nanos::never() : now + scrub_pause;
}

void Journal::take_soon() {
    for (auto& [name, record] : std::exchange(soon_, {})) changes_[name] = std::move(record);
    soon_waits_ = false;
    soon_at_ = Nanos::never();
    commit_due_ = true;
    ask();
}

void Journal::take_room(Nanos now) {
    room_at_ = store_->take_room() ? Nanos::never() : now + room_pause;
}

Status Journal::finish() {
    take_soon();
    Flushed flushed;
    return commit({}, flushed);
}

}  // namespace souk
