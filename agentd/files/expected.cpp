// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/expected.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "agentd/files/fuse_bytes.hpp"
#include "agentd/files/own_requests.hpp"

namespace souk::files {
namespace {

constexpr int64_t good_for_ns = 2'000'000'000;  // what is known for longer is not asked for
constexpr int64_t file_system_for_ns = 3'000'000'000;
constexpr int64_t opened_for_ns = 30'000'000'000;  // an open file that nobody has wanted by then
constexpr uint32_t left_to_kernel = 16;            // slots

}  // namespace

void Expected::add(std::string_view path, uint32_t flags, bool opens) {
    uint32_t at = 0;
    while (!path.empty()) {
        const std::string_view name = path.substr(0, path.find('/'));
        path.remove_prefix(std::min(name.size() + 1, path.size()));
        if (name.empty()) continue;
        if (name == "." || name == ".." || name.size() > name_bytes_max) return;
        const auto [it, is_new] =
            by_name_.try_emplace({at, std::string(name)}, static_cast<uint32_t>(places_.size()));
        if (is_new) {
            places_[at].below.push_back(it->second);
            places_.push_back({0, at, std::string(name), {}, false, {}});
        }
        at = it->second;
    }
    if (at == 0) return;
    if (opens)
        places_[at].opens.push_back(flags & (O_ACCMODE | O_APPEND));
    else
        places_[at].is_file = true;
}

void Expected::begin(std::string_view list, bool opens) {
    forget();
    places_.assign(1, {});
    for (size_t at = 0, paths = 0; at < list.size() && paths < paths_max; ++paths) {
        const size_t end = list.find('\0', at);
        if (end == list.npos) break;
        const std::string_view line = list.substr(at, end - at);
        at = end + 1;
        uint32_t flags = 0;
        const auto read = std::from_chars(line.data(), line.data() + line.size(), flags, 8);
        const auto rest = line.substr(static_cast<size_t>(read.ptr - line.data()));
        if (read.ec == std::errc() && rest.starts_with(" /")) add(rest.substr(2), flags, opens);
    }
    found(0, FUSE_ROOT_ID);
}

void Expected::begin(const Fd& list, bool opens) {
    std::string text(list_bytes_max, '\0');
    const ssize_t got = ::pread(list.get(), text.data(), text.size(), 0);
    if (got > 0) begin(std::string_view(text).substr(0, static_cast<size_t>(got)), opens);
}

void Expected::forget() {
    todo_.clear();
    asked_.clear();
    offered_.clear();
    places_.clear();
    by_name_.clear();
}

void Expected::found(uint32_t place, uint64_t node) {
    places_[place].node = node;
    for (const uint32_t below : places_[place].below) todo_.push_back({below});
    for (const uint32_t flags : places_[place].opens) todo_.push_back({place, What::open, flags});
    if (places_[place].is_file) todo_.push_back({place, What::file_system});
}

bool Expected::known(const Todo& todo, int64_t now_ns) {
    const Place& place = places_[todo.place];
    if (todo.what == What::open) {
        size_t& counted = offered_[{place.node, todo.flags}];
        if (cache_.offers(place.node, todo.flags, now_ns + good_for_ns) <= counted) return false;
        ++counted;
        return true;
    }
    if (todo.what != What::name) return false;
    const uint64_t node =
        cache_.node_of(places_[place.parent].node, place.name, now_ns + good_for_ns);
    if (node != 0) found(todo.place, node);
    return node != 0;
}

Bytes Expected::request_of(const Todo& todo) const {
    const Place& place = places_[todo.place];
    switch (todo.what) {
        case What::open: return open_request(place.node, todo.flags);
        case What::file_system: return statfs_request(place.node);
        case What::name: break;
    }
    return lookup_request(places_[place.parent].node, place.name);
}

void Expected::ask(int64_t now_ns) {
    while (!todo_.empty() && asked_.size() < under_way_max && upstream_.connected() &&
           upstream_.welcomed() && slots_.span() <= slots) {
        const Todo todo = todo_.front();
        if (known(todo, now_ns)) {
            todo_.pop_front();
            continue;
        }
        const int n = slots_.find_free();
        if (n < 0 || static_cast<uint32_t>(n) >= slots - left_to_kernel) return;
        todo_.pop_front();
        asked_[upstream_.ask(static_cast<uint32_t>(n), request_of(todo))] = todo;
    }
}

bool Expected::took(uint64_t seq, ByteView request, ByteView answer, Lease lease, int64_t now_ns) {
    const auto it = asked_.find(seq);
    if (it == asked_.end()) return false;
    const Todo todo = it->second;
    asked_.erase(it);
    ByteView rest = answer;
    fuse_out_header said{};
    if (!take(rest, said) || said.error != 0) return true;
    if (todo.what == What::file_system) {
        fuse_statfs_out is{};
        if (take(rest, is))
            cache_.learn_statfs(places_[todo.place].node, is, now_ns + file_system_for_ns);
        return true;
    }
    const uint64_t node = learn(request, answer, lease, now_ns);
    if (todo.what == What::open) ++offered_[{places_[todo.place].node, todo.flags}];
    if (todo.what == What::name && node != 0) found(todo.place, node);
    return true;
}

// The node that was looked up; 0: none was.
uint64_t Expected::learn(ByteView request, ByteView answer, Lease lease, int64_t now_ns) {
    fuse_in_header head{};
    fuse_out_header said{};
    ByteView asks = request, rest = answer;
    if (!take(asks, head) || !take(rest, said) || said.error != 0) return 0;
    fuse_open_in in{};
    fuse_open_out opened{};
    fuse_entry_out entry{};
    if (head.opcode == FUSE_OPEN && take(asks, in) && take(rest, opened))
        cache_.offer(head.nodeid, in.flags, opened, now_ns + opened_for_ns);
    if (head.opcode != FUSE_LOOKUP || !take(rest, entry) || entry.nodeid == 0) return 0;
    cache_.learn(request, answer, lease, now_ns);
    cache_.hold(entry.nodeid);
    return entry.nodeid;
}

void Expected::told(ByteView both, Lease lease, int64_t now_ns) {
    fuse_in_header head{};
    ByteView rest = both;
    if (take(rest, head) && head.len >= sizeof head && head.len <= both.size())
        (void)learn(both.first(head.len), both.subspan(head.len), lease, now_ns);
}

}  // namespace souk::files
