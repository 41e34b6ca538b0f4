// SPDX-License-Identifier: GPL-2.0-or-later
// Disk: the disk of one simulated daemon, as its Journal's store. What a commit has taken is there
// after any crash, the rest is not. It may be full for a time: then a commit fails, unless the
// reserve of room was taken before; that lasts for a few commits.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <string>

#include "kernel/base/journal.hpp"

namespace souk::sim {

class Disk final : public Journal::Store {
  public:
    std::map<RecordName, std::string> rows;
    bool full = false;
    // Deliberate bugs: a full disk says that it took what it did not; a crash takes the newest
    // commit back.
    bool lies = false, forgets = false;
    uint64_t commits = 0, refused = 0;
    // Each row that has become durable.
    std::function<void(const RecordName& name, const std::string& value)> on_row;

    Status commit(const Changes& changes) override {
        if (full && spare_ == 0) {
            ++refused;
            return lies ? Status{} : Status(tl::unexpected(Error{ENOSPC, "the disk is full"}));
        }
        if (full) --spare_;
        ++commits;
        if (forgets) before_ = rows;
        for (const auto& [name, value] : changes) {
            if (value)
                rows.insert_or_assign(name, *value);
            else
                rows.erase(name);
            if (value) on_row(name, *value);
        }
        return {};
    }
    bool give_room() override {
        if (!std::exchange(reserve_, false)) return false;
        spare_ = spare_commits;
        return true;
    }
    bool take_room() override {
        reserve_ = reserve_ || !full;
        if (!full) spare_ = 0;
        return reserve_;
    }
    void crash() {
        if (forgets && !before_.empty()) rows = before_;
    }
    // Those of a kind, by key.
    template <class Record, class Read>
    std::vector<Record> load(std::string_view kind, Read read) const {
        std::vector<Record> records;
        for (auto it = rows.lower_bound({std::string(kind), ""});
             it != rows.end() && it->first.first == kind; ++it)
            records.push_back(read(it->second));
        return records;
    }

  private:
    static constexpr int spare_commits = 8;
    bool reserve_ = false;
    int spare_ = 0;
    std::map<RecordName, std::string> before_;
};

}  // namespace souk::sim
