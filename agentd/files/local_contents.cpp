// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/local_contents.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "kernel/sys/net/descriptors.hpp"

namespace souk::files {
namespace {

constexpr uint64_t small_bytes = 256 * 1024;  // is brought at once

// Tells whether the file is still as it was when the home named the content.
bool is_same(const Content& c, const fuse_attr& attr) {
    return c.id.size == attr.size && c.mtime_s == attr.mtime && c.mtime_ns == attr.mtimensec &&
           c.ctime_s == attr.ctime && c.ctime_ns == attr.ctimensec;
}

template <class T>
void make_request(Bytes& request, uint32_t opcode, uint64_t node, const T& in) {
    fuse_in_header head{};
    head.len = sizeof head + sizeof in;
    head.opcode = opcode;
    head.nodeid = node;
    request.resize(head.len);
    std::memcpy(request.data(), &head, sizeof head);
    std::memcpy(request.data() + sizeof head, &in, sizeof in);
}

}  // namespace

void LocalContents::connect(Fd store) {
    lost();
    memory_ = Fd(::memfd_create("souk-files-part", MFD_CLOEXEC));
    if (!memory_ || ::ftruncate(memory_.get(), store_part_bytes) != 0) return;
    store_ = std::move(store);
    StoreAsk ask;
    ask.kind = StoreAsk::memory;
    (void)say(ask, memory_.get());
}

// All is read from the home.
void LocalContents::lost() {
    store_.reset();
    prove_.reset();
    forget();
}

void LocalContents::forget() {
    files_.clear();
    read_.clear();
    open_ = 0;
    queue_.clear();
    if (fill_ && store_) {
        StoreAsk ask;
        ask.kind = StoreAsk::cancel;
        (void)say(ask);
    }
    fill_.reset();  // what it has open at home ends with the session
}

bool LocalContents::say(const StoreAsk& ask, int file) {
    const std::string_view bytes(reinterpret_cast<const char*>(&ask), sizeof ask);
    const auto sent =
        send_descriptors(store_.get(), bytes, {&file, file >= 0 ? size_t{1} : size_t{0}});
    if (sent && *sent) return true;
    lost();
    return false;
}

void LocalContents::learn(const Content& content) {
    if (!prove_ || content.id.size < content_bytes_min || content.id.size > content_bytes_max)
        return;
    if (files_.size() >= files_max || open_ >= open_max) forget();
    auto [it, is_new] = files_.try_emplace(content.node);
    File& file = it->second;
    const bool same = !is_new && file.content.id == content.id;
    file.content = content;
    if (same && file.state != File::missing) return;
    if (file.file) --open_;
    file.file.reset();
    find(content.node, file);
}

void LocalContents::find(uint64_t node, File& file) {
    file.state = File::asked;
    StoreAsk ask;
    ask.kind = StoreAsk::find;
    ask.number = node;
    ask.id = file.content.id;
    (void)say(ask);
}

LocalContents::Where LocalContents::where(uint64_t node, const fuse_attr* attr, uint32_t bytes) {
    if (!store_) return Where::home;
    if (read_.size() >= files_max) read_.clear();
    read_[node] += bytes;  // what is opened before the store is ready is known later
    const auto it = files_.find(node);
    if (it == files_.end() || !attr) return Where::home;
    File& file = it->second;
    if (!is_same(file.content, *attr)) {
        if (file.file) --open_;
        files_.erase(it);
        return Where::home;
    }
    if (file.state == File::here) return Where::here;
    if (file.state == File::asked) return Where::wait;
    consider(node, file);
    return Where::home;
}

// Puts the file into the queue of contents to be fetched whole. A big file must wait until a
// quarter of it has been read, because a job may read only a part of it.
void LocalContents::consider(uint64_t node, File& file) {
    const uint64_t size = file.content.id.size;
    const auto read = read_.find(node);
    if (file.state != File::missing || queue_.size() >= queue_max || read == read_.end() ||
        (size > small_bytes && read->second < size / 4))
        return;
    file.state = File::queued;
    queue_.push_back(node);
    begin_fill();
}

void LocalContents::hear() {
    while (store_) {
        StoreSays says;
        auto got = receive_descriptors(store_.get(), {reinterpret_cast<char*>(&says), sizeof says});
        if (got && !*got) break;
        if (!got || (*got)->bytes != sizeof says) {
            lost();
            break;
        }
        const auto it = files_.find(says.number);
        const bool asked = it != files_.end() && it->second.state == File::asked;
        switch (says.kind) {
            case StoreSays::begin: prove_ = says.prove; break;
            case StoreSays::found:
                if (!asked || (*got)->descriptors.empty()) break;
                it->second.file = std::move((*got)->descriptors[0]);
                it->second.state = File::here;
                ++open_;
                break;
            case StoreSays::missing:
                if (!asked) break;
                it->second.state = File::missing;
                consider(says.number, it->second);
                break;
            case StoreSays::more:
                if (fill_) fill_->step = fill_->step == Fill::asked ? Fill::open : Fill::read;
                break;
            case StoreSays::kept: end_fill(true); break;
            case StoreSays::refused: end_fill(false); break;
            default: break;
        }
    }
}

bool LocalContents::renews(uint64_t node, int64_t now_ns) {
    constexpr int64_t pause_ns = 1'000'000'000;
    const auto it = files_.find(node);
    if (it == files_.end()) return false;
    File& file = it->second;
    if (file.state != File::here || now_ns - file.renewed_ns < pause_ns) return false;
    file.renewed_ns = now_ns;
    return true;
}

// ---- what is brought

void LocalContents::begin_fill() {
    while (!fill_ && !queue_.empty()) {
        const uint64_t node = queue_.front();
        queue_.erase(queue_.begin());
        const auto it = files_.find(node);
        if (it == files_.end() || it->second.state != File::queued) continue;
        fill_.emplace(Fill{});
        fill_->node = node;
        fill_->id = it->second.content.id;
        StoreAsk ask;
        ask.kind = StoreAsk::put;
        ask.id = fill_->id;
        if (!say(ask)) return;
    }
}

// Looks for the content in the store again: this client has brought it there, or another one has.
void LocalContents::end_fill(bool kept) {
    if (!fill_) return;
    const auto it = files_.find(fill_->node);
    if (it != files_.end() && it->second.state == File::queued) {
        read_.erase(it->first);
        if (kept) find(it->first, it->second);  // else it stays queued: once is enough
    }
    if (!fill_) return;  // the store is gone
    if (fill_->fh != 0) {
        fill_->step = Fill::close;
        return;
    }
    fill_.reset();
    begin_fill();
}

bool LocalContents::next_request(Bytes& request) {
    if (!fill_) return false;
    switch (fill_->step) {
        case Fill::open:
            make_request(request, FUSE_OPEN, fill_->node, fuse_open_in{O_RDONLY, 0});
            fill_->step = Fill::opening;
            return true;
        case Fill::read: {
            fuse_read_in in{};
            in.fh = fill_->fh;
            in.offset = fill_->at;
            in.size = static_cast<uint32_t>(
                std::min<uint64_t>(store_part_bytes, fill_->id.size - fill_->at));
            make_request(request, FUSE_READ, fill_->node, in);
            fill_->step = Fill::reading;
            return true;
        }
        case Fill::close: {
            fuse_release_in in{};
            in.fh = fill_->fh;
            make_request(request, FUSE_RELEASE, fill_->node, in);
            fill_.reset();
            begin_fill();
            return true;
        }
        default: return false;
    }
}

void LocalContents::answered(ByteView answer) {
    if (!fill_ || (fill_->step != Fill::opening && fill_->step != Fill::reading)) return;
    fuse_out_header head{};
    StoreAsk cancel;
    cancel.kind = StoreAsk::cancel;
    const auto give_up = [&] {
        if (say(cancel)) end_fill(false);
    };
    if (answer.size() < sizeof head) return give_up();
    std::memcpy(&head, answer.data(), sizeof head);
    const ByteView body = answer.subspan(sizeof head);
    if (head.error != 0) return give_up();
    if (fill_->step == Fill::opening) {
        fuse_open_out opened{};
        if (body.size() < sizeof opened) return give_up();
        std::memcpy(&opened, body.data(), sizeof opened);
        fill_->fh = opened.fh;
        fill_->step = Fill::read;
        return;
    }
    if (body.empty() || body.size() > store_part_bytes ||
        fill_->at + body.size() > fill_->id.size ||
        ::pwrite(memory_.get(), body.data(), body.size(), 0) != static_cast<ssize_t>(body.size()))
        return give_up();  // it has become shorter
    fill_->at += body.size();
    fill_->step = Fill::bringing;
    StoreAsk part;
    part.kind = StoreAsk::part;
    part.bytes = static_cast<uint32_t>(body.size());
    (void)say(part);
}

}  // namespace souk::files
