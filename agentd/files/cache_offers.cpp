// SPDX-License-Identifier: GPL-2.0-or-later
// Cache: files that are open at home ahead of whoever opens them here, and those that nobody wants.
#include <fcntl.h>

#include <algorithm>

#include "agentd/files/cache.hpp"
#include "agentd/files/fuse_bytes.hpp"

namespace souk::files {

void Cache::offer(uint64_t node, uint32_t flags, const fuse_open_out& opened, int64_t until_ns) {
    if (offered_.size() >= offered_max) return unwanted_.emplace_back(node, opened.fh), void();
    offered_.insert({node, {node, flags, opened, until_ns}});
    offers_end_ns_ = std::min(offers_end_ns_, until_ns);
}

size_t Cache::offers(uint64_t node, uint32_t flags, int64_t until_ns) const {
    const auto [from, to] = offered_.equal_range(node);
    return static_cast<size_t>(std::count_if(from, to, [&](const auto& one) {
        return one.second.flags == flags && one.second.until_ns > until_ns;
    }));
}

bool Cache::answer_open(uint64_t node, uint32_t flags, int64_t now_ns, Bytes& body) {
    if ((flags & O_TRUNC) != 0) return false;
    const auto [from, to] = offered_.equal_range(node);
    const auto it = std::find_if(from, to, [&](const auto& one) {
        return one.second.flags == (flags & (O_ACCMODE | O_APPEND)) && one.second.until_ns > now_ns;
    });
    if (it == to) return false;
    const bool reads = (flags & (O_ACCMODE | O_APPEND)) == O_RDONLY;
    fuse_open_out opened = it->second.opened;
    opened.open_flags &= ~uint32_t{FOPEN_NOFLUSH};  // a close is heard
    const auto* bytes = reinterpret_cast<const uint8_t*>(&opened);
    body.insert(body.end(), bytes, bytes + sizeof opened);
    offered_.erase(it);
    if (!reads) drop_node(node);
    return true;
}

// Asked with each request: only now and then do offers end.
void Cache::end_offers(int64_t now_ns) {
    if (now_ns < offers_end_ns_) return;
    offers_end_ns_ = INT64_MAX;
    std::erase_if(offered_, [&](const auto& one) {
        const bool ends = one.second.until_ns <= now_ns;
        if (ends) unwanted_.emplace_back(one.first, one.second.opened.fh);
        if (!ends) offers_end_ns_ = std::min(offers_end_ns_, one.second.until_ns);
        return ends;
    });
}

uint64_t Cache::take_unwanted(uint64_t& node, int64_t now_ns) {
    end_offers(now_ns);
    while (unwanted_.empty() && opens_.size() > parked_max) {
        const auto some =
            std::ranges::find_if(opens_, [](const auto& o) { return o.second.parked; });
        if (some == opens_.end()) return 0;
        unwanted_.emplace_back(some->first, some->second.fh);
        open_of_.erase(some->second.fh);
        opens_.erase(some);
    }
    if (unwanted_.empty()) return 0;
    node = unwanted_.front().first;
    const uint64_t fh = unwanted_.front().second;
    unwanted_.pop_front();
    return fh;
}

}  // namespace souk::files
