// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/journal_db.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace souk {
namespace {

constexpr off_t reserve_bytes = 4 << 20;
constexpr const char* kind_aside = "aside";

std::string aside_key(std::string_view kind, std::string_view key) {
    return std::string(kind) + " " + std::string(key);
}

}  // namespace

void JournalDb::put(std::string_view kind, std::string_view key, std::string value) {
    journal_.put(kind, key, std::move(value), Durable::now);
}

void JournalDb::erase(std::string_view kind, std::string_view key) {
    journal_.erase(kind, key, Durable::now);
}

Result<std::optional<std::string>> JournalDb::get(std::string_view kind,
                                                  std::string_view key) const {
    if (const auto* noted = journal_.noted(kind, key)) return *noted;
    return db_.get(kind, key);
}

Status JournalDb::read_all(std::string_view kind, const Read& read) {
    TRY_ASSIGN(const auto rows, db_.load(kind));
    TRY_ASSIGN(const auto aside, db_.load(kind_aside));
    for (const StateDb::Row& row : rows) {
        const Status taken = read(row);
        if (taken) continue;
        aside_.push_back({std::string(kind), row.key, taken.error().message});
        put(kind_aside, aside_key(kind, row.key), row.value);
        erase(kind, row.key);
    }
    const std::string begin = aside_key(kind, "");
    for (const StateDb::Row& row : aside) {
        if (!row.key.starts_with(begin)) continue;
        const StateDb::Row before{row.key.substr(begin.size()), row.value};
        const bool replaced = std::ranges::any_of(
            rows, [&](const StateDb::Row& now) { return now.key == before.key; });
        if (is_aside(kind, before.key)) continue;
        if (replaced) {
            replaced_.push_back({std::string(kind), before.key, "a newer record has its place"});
            continue;
        }
        if (const Status taken = read(before); !taken) {
            aside_.push_back({std::string(kind), before.key, taken.error().message});
            continue;
        }
        put(kind, before.key, before.value);
        erase(kind_aside, row.key);
    }
    list_aside();
    return {};
}

bool JournalDb::is_aside(std::string_view kind, std::string_view key) const {
    return std::ranges::any_of(aside_,
                               [&](const SetAside& a) { return a.kind == kind && a.key == key; });
}

void JournalDb::forget_aside(std::string_view kind, std::string_view key) {
    for (auto* list : {&aside_, &replaced_})
        std::erase_if(*list, [&](const SetAside& a) { return a.kind == kind && a.key == key; });
    erase(kind_aside, aside_key(kind, key));
    list_aside();
}

// The list is for people: what is set aside does not depend on it.
void JournalDb::list_aside() const {
    const std::string path = db_.path().substr(0, db_.path().rfind('/')) + "/aside.txt";
    if (aside_.empty() && replaced_.empty()) {
        ::unlink(path.c_str());
        return;
    }
    std::string text;
    for (const auto* list : {&aside_, &replaced_})
        for (const SetAside& a : *list) text += a.kind + " " + a.key + ": " + a.why + "\n";
    (void)create_file(AT_FDCWD, path, text, O_TRUNC | O_NOFOLLOW, 0600);
}

bool JournalDb::give_up(const std::string& reserve) {
    return !reserve.empty() && ::unlink(reserve.c_str()) == 0;
}

bool JournalDb::take_room() {
    if (reserve_.empty()) return true;
    const auto fd = open_at(AT_FDCWD, reserve_, O_RDWR | O_CREAT, 0600);
    const bool taken = fd && ::posix_fallocate(fd->get(), 0, reserve_bytes) == 0;
    if (!taken) ::unlink(reserve_.c_str());
    return taken;
}

}  // namespace souk
