// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/cache.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agentd/files/fuse_bytes.hpp"

namespace souk::files {
namespace {

template <class T>
void add(Bytes& out, const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
}

// Returns the text if it has the zero that ends it; null: it has none.
const char* text_of(ByteView bytes) {
    return bytes.empty() || !std::memchr(bytes.data(), 0, bytes.size())
               ? nullptr
               : reinterpret_cast<const char*>(bytes.data());
}

bool reads_only(uint32_t flags) { return (flags & (O_ACCMODE | O_TRUNC | O_APPEND)) == O_RDONLY; }

}  // namespace

bool Cache::is_known(uint64_t node, int64_t now_ns) const {
    const auto it = attributes_.find(node);
    return it != attributes_.end() && it->second.until_ns > now_ns;
}

bool Cache::answer_lookup(uint64_t parent, const char* name, int64_t now_ns, Bytes& body) {
    const auto it = names_.find({parent, name});
    if (it == names_.end() || it->second.until_ns <= now_ns) return false;
    fuse_entry_out entry = it->second.entry;
    if (entry.nodeid != 0) {
        const auto known = attributes_.find(entry.nodeid);
        // The node has got another name since, or none. The server may not know the old one any
        // more.
        if (known == attributes_.end() || known->second.until_ns <= now_ns ||
            known->second.name != it->first)
            return false;
        entry.attr = known->second.attr.attr;
        if (++uncounted_[entry.nodeid] == 0) uncounted_.erase(entry.nodeid);
    }
    add(body, entry);
    return true;
}

uint64_t Cache::node_of(uint64_t directory, const std::string& name, int64_t until_ns) const {
    const auto it = names_.find({directory, name});
    if (it == names_.end() || it->second.until_ns <= until_ns) return 0;
    const uint64_t node = it->second.entry.nodeid;
    return node != 0 && is_known(node, until_ns) ? node : 0;
}

void Cache::learn_statfs(uint64_t node, const fuse_statfs_out& said, int64_t until_ns) {
    if (statfs_.size() >= parked_max * 16) statfs_.clear();
    statfs_[node] = {said, until_ns};
}

bool Cache::answer_statfs(uint64_t node, int64_t now_ns, Bytes& body) const {
    const auto it = statfs_.find(node);
    if (it == statfs_.end() || it->second.second <= now_ns) return false;
    add(body, it->second.first);
    return true;
}

bool Cache::answer(ByteView request, int64_t now_ns, Bytes& out) {
    fuse_in_header head{};
    ByteView rest = request;
    if (!take(rest, head)) return false;
    int error = 0;
    Bytes body;
    const auto parked = opens_.find(head.nodeid);
    switch (head.opcode) {
        case FUSE_LOOKUP: {
            const char* name = text_of(rest);
            if (!name || !answer_lookup(head.nodeid, name, now_ns, body)) return false;
            break;
        }
        case FUSE_GETATTR:
            if (!is_known(head.nodeid, now_ns)) return false;
            add(body, attributes_.at(head.nodeid).attr);
            break;
        case FUSE_STATFS:
            if (!answer_statfs(head.nodeid, now_ns, body)) return false;
            break;
        case FUSE_GETXATTR: {
            // The server knows none of these attributes (Session::get_extended).
            fuse_getxattr_in in{};
            const char* name = take(rest, in) ? text_of(rest) : nullptr;
            if (!name ||
                (std::strncmp(name, "security.", 9) != 0 && std::strncmp(name, "trusted.", 8) != 0))
                return false;
            error = ENODATA;
            break;
        }
        case FUSE_IOCTL: error = ENOTTY; break;  // isatty(3) asks this of each file
        case FUSE_OPEN:
        case FUSE_OPENDIR: {
            fuse_open_in in{};
            if (!take(rest, in)) return false;
            if (head.opcode == FUSE_OPEN && answer_open(head.nodeid, in.flags, now_ns, body)) break;
            if (!reads_only(in.flags) || parked == opens_.end() || !parked->second.parked ||
                !is_known(head.nodeid, now_ns))
                return false;
            parked->second.parked = false;
            fuse_open_out opened{};
            opened.fh = parked->second.fh;
            opened.open_flags =
                FOPEN_KEEP_CACHE | (head.opcode == FUSE_OPEN ? FOPEN_NOFLUSH : FOPEN_CACHE_DIR);
            add(body, opened);
            break;
        }
        case FUSE_RELEASE:
        case FUSE_RELEASEDIR: {
            fuse_release_in in{};
            if (!take(rest, in) || parked == opens_.end() || parked->second.fh != in.fh)
                return false;
            if (!is_known(head.nodeid, now_ns)) {
                open_of_.erase(in.fh);
                opens_.erase(parked);
                return false;
            }
            parked->second.parked = true;
            break;
        }
        default: return false;
    }
    fuse_out_header answer{};
    answer.len = static_cast<uint32_t>(sizeof answer + body.size());
    answer.error = -error;
    answer.unique = head.unique;
    add(out, answer);
    out.insert(out.end(), body.begin(), body.end());
    return true;
}

// ---- what the server says

void Cache::learn_entry(const Name& name, ByteView body, int64_t until_ns) {
    fuse_entry_out entry{};
    if (!take(body, entry)) return;
    if (names_.size() + attributes_.size() >= lines_max) drop_all();
    names_[name] = {entry, until_ns};
    if (entry.nodeid == 0) return;
    last_name_[entry.nodeid] = name;
    if (writing_.contains(entry.nodeid)) return;
    fuse_attr_out attr{};
    attr.attr_valid = entry.attr_valid;
    attr.attr = entry.attr;
    attributes_[entry.nodeid] = {attr, name, until_ns};
}

void Cache::learn(ByteView request, ByteView answer, Lease lease, int64_t now_ns) {
    const bool leased = lease != Lease::none;
    const int64_t until_ns = now_ns + (lease == Lease::program ? lease_ns : own_lease_ns);
    fuse_in_header head{};
    fuse_out_header said{};
    if (!take(request, head) || !take(answer, said)) return;
    if (head.opcode == FUSE_LOOKUP && leased && said.error == 0) {
        if (const char* name = text_of(request)) learn_entry({head.nodeid, name}, answer, until_ns);
        return;
    }
    fuse_open_in in{};
    const bool opens = head.opcode == FUSE_OPEN || head.opcode == FUSE_OPENDIR;
    if (opens && take(request, in) && reads_only(in.flags)) {
        fuse_open_out opened{};
        // The cache keeps one open file of each node. A further one is closed at home when the job
        // closes it.
        if (!leased || said.error != 0 || opens_.contains(head.nodeid) || !take(answer, opened) ||
            !is_known(head.nodeid, now_ns))
            return;
        opens_[head.nodeid] = {opened.fh, false};
        open_of_[opened.fh] = head.nodeid;
        return;
    }
    if (head.opcode == FUSE_GETATTR && leased && said.error == 0) {
        // A recall comes by a name: without one that is known, none would find these attributes.
        const auto name = last_name_.find(head.nodeid);
        if (name == last_name_.end() || writing_.contains(head.nodeid)) return;
        const auto known = names_.find(name->second);
        fuse_attr_out attr{};
        if (known != names_.end() && known->second.entry.nodeid == head.nodeid &&
            take(answer, attr))
            attributes_[head.nodeid] = {attr, name->second, until_ns};
        return;
    }
    changed(head, request);
}

// Drops what a request of the job itself has changed at home.
void Cache::changed(const fuse_in_header& head, ByteView rest) {
    const auto drop_named = [&](uint64_t directory, ByteView text) {
        if (const char* name = text_of(text)) drop_name({directory, name});
        drop_node(directory);
    };
    const auto after = [&](size_t bytes) { return rest.subspan(std::min(bytes, rest.size())); };
    switch (head.opcode) {
        case FUSE_UNLINK:
        case FUSE_RMDIR:
        case FUSE_SYMLINK: return drop_named(head.nodeid, rest);
        case FUSE_MKNOD: return drop_named(head.nodeid, after(sizeof(fuse_mknod_in)));
        case FUSE_MKDIR: return drop_named(head.nodeid, after(sizeof(fuse_mkdir_in)));
        case FUSE_CREATE:
        case FUSE_TMPFILE: return drop_named(head.nodeid, after(sizeof(fuse_create_in)));
        case FUSE_LINK: {
            fuse_link_in in{};
            if (take(rest, in)) drop_node(in.oldnodeid);
            return drop_named(head.nodeid, rest);
        }
        case FUSE_RENAME:
        case FUSE_RENAME2: {
            uint64_t to = 0;  // both begin with it
            const ByteView names = after(head.opcode == FUSE_RENAME ? sizeof(fuse_rename_in)
                                                                    : sizeof(fuse_rename2_in));
            const char* name = text_of(names);
            if (!name || !take(rest, to)) return drop_all();
            drop_named(head.nodeid, names);
            return drop_named(to, names.subspan(std::strlen(name) + 1));
        }
        case FUSE_COPY_FILE_RANGE: {
            fuse_copy_file_range_in in{};
            if (take(rest, in)) drop_node(in.nodeid_out);
            return;
        }
        case FUSE_OPEN:  // for more than reading
        case FUSE_SETATTR:
        case FUSE_WRITE:
        case FUSE_FALLOCATE:
        case FUSE_SETXATTR:
        case FUSE_REMOVEXATTR: return drop_node(head.nodeid);
        default: return;
    }
}

void Cache::writing(uint64_t node) {
    ++writing_[node];
    drop_node(node);
}

void Cache::written(uint64_t node) {
    const auto it = writing_.find(node);
    if (it != writing_.end() && --it->second == 0) writing_.erase(it);
    drop_node(node);
}

// ---- what is not so any more

void Cache::drop_node(uint64_t node) {
    attributes_.erase(node);
    const auto open = opens_.find(node);
    if (open == opens_.end() || !open->second.parked) return;
    unwanted_.emplace_back(node, open->second.fh);
    open_of_.erase(open->second.fh);
    opens_.erase(open);
}

void Cache::drop_name(const Name& name) {
    const auto it = names_.find(name);
    if (it == names_.end()) return;
    const uint64_t node = it->second.entry.nodeid;
    names_.erase(it);
    if (node != 0) drop_node(node);
}

void Cache::drop_all() {
    names_.clear();
    attributes_.clear();
    last_name_.clear();
    for (auto it = opens_.begin(); it != opens_.end();) {
        if (!it->second.parked) {
            ++it;
            continue;
        }
        unwanted_.emplace_back(it->first, it->second.fh);
        open_of_.erase(it->second.fh);
        it = opens_.erase(it);
    }
    statfs_.clear();
    for (const auto& [node, one] : offered_) unwanted_.emplace_back(node, one.opened.fh);
    offered_.clear();
}

// Attributes that are not known here the kernel has from an answer that is good for a second only.
void Cache::stale(uint64_t node) {
    if (attributes_.contains(node)) stale_.push_back(node);
    drop_node(node);
}

void Cache::recall(uint64_t directory, const std::string& name, bool stays) {
    if (directory == 0) {
        for (const auto& [node, attributes] : attributes_) stale_.push_back(node);
        return drop_all();
    }
    if (!stays || name.empty()) stale(directory);
    const auto drop = [&](const Name& known) {
        const auto it = names_.find(known);
        if (it == names_.end()) return;
        if (const uint64_t node = it->second.entry.nodeid; node != 0) stale(node);
        if (stays) return;
        names_.erase(it);
    };
    if (!name.empty()) return drop({directory, name});
    std::vector<Name> all;
    for (auto it = names_.lower_bound({directory, ""});
         it != names_.end() && it->first.first == directory; ++it)
        all.push_back(it->first);
    for (const Name& known : all) drop(known);
}

// Returns how many of these references the server counts. The node may go with them.
uint64_t Cache::forget(uint64_t node, uint64_t count) {
    const auto own = uncounted_.find(node);
    if (own != uncounted_.end()) {
        const int64_t taken = std::min(own->second, static_cast<int64_t>(count));
        count -= static_cast<uint64_t>(taken);
        own->second -= taken;
        if (own->second == 0) uncounted_.erase(own);
    }
    if (count == 0) return 0;
    if (const auto name = last_name_.find(node); name != last_name_.end()) {
        const auto it = names_.find(name->second);
        if (it != names_.end() && it->second.entry.nodeid == node) names_.erase(it);
        last_name_.erase(name);
    }
    drop_node(node);
    return count;
}

bool Cache::forgotten(uint8_t* request, size_t bytes) {
    fuse_in_header head{};
    ByteView rest(request, bytes);
    if (!take(rest, head)) return true;
    if (head.opcode == FUSE_FORGET) {
        fuse_forget_in in{};
        if (!take(rest, in)) return true;
        in.nlookup = forget(head.nodeid, in.nlookup);
        std::memcpy(request + sizeof head, &in, sizeof in);
        return in.nlookup > 0;
    }
    fuse_batch_forget_in in{};
    if (!take(rest, in)) return true;
    uint8_t* at = request + sizeof head + sizeof in;
    fuse_forget_one one{};
    bool left = false;
    for (uint32_t i = 0; i < in.count && take(rest, one); ++i, at += sizeof one) {
        one.nlookup = forget(one.nodeid, one.nlookup);
        std::memcpy(at, &one, sizeof one);
        left = left || one.nlookup > 0;
    }
    return left;
}

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
