// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/journal_db.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace souk {
namespace {

constexpr off_t reserve_bytes = 4 << 20;

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
