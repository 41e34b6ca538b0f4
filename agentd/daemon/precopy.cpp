// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/precopy.hpp"

#include "checkpoint/precopy_source.hpp"

namespace souk {
namespace {
constexpr Nanos round_limit = Nanos::from_s(240), round_again = Nanos::from_ms(30);
}  // namespace

PrecopyLinks::PrecopyLinks(Loop& loop, BulkIdentity own, Handlers handlers)
    : loop_(loop), own_(std::move(own)), handlers_(std::move(handlers)) {}

// -------------------------------------------------------------------------------------------------
// source

void PrecopyLinks::open(const GuestKey& from, const GuestKey& to, const Peer& dest,
                        uint64_t bytes) {
    Sending& s = sending_[from] = Sending{};
    s.node = dest.node;
    s.began = Loop::now();
    s.bytes = bytes;
    BulkSender::Handlers handlers;
    handlers.frame = [this, from](const wire::Frame& f) { heard(from, f); };
    handlers.piece = [this, from]() -> Result<std::string_view> {
        PrecopySource* const source = sending_.at(from).source;
        return source ? source->piece() : std::string_view{};
    };
    handlers.sent = [this, from](size_t n) { sending_.at(from).source->sent(n); };
    handlers.idle = [this, from] {
        if (const Sending& idle = sending_.at(from); !idle.source) idle.link->not_waiting();
    };
    handlers.ended = [this, from](const std::string& why) { end(from, why); };
    const wire::PrecopyBegin first{to.id, to.epoch, own_.node, bytes};
    s.link = std::make_unique<BulkSender>(loop_, own_, dest, std::move(handlers));
    s.link->begin(wire::frame::precopy_begin, wire::pack(first));
}

// An older agentd refuses the frame that it does not know, with an error.
void PrecopyLinks::heard(const GuestKey& from, const wire::Frame& f) {
    const auto it = sending_.find(from);
    if (it == sending_.end() || f.type == wire::frame::welcome) return;
    if (f.type == wire::frame::image_result) {
        const auto result = wire::unpack<wire::ImageResult>(f.body);
        return end(from, result ? result->why : result.error().message);
    }
    if (f.type != wire::frame::pages_state) return end(from, BulkSender::refusal(f));
    const auto state = wire::unpack<wire::PagesState>(f.body);
    if (!state) return end(from, state.error().message);
    Sending& s = it->second;
    if (s.source && state->put != s.source->bytes_sent())
        return end(from, "the destination has not taken what was sent");
    if (!s.source && s.accepted) return end(from, "the destination acknowledges what was not sent");
    s.accepted = true;
    s.source = nullptr;
    s.link->not_waiting();
    s.limit.cancel();
    handlers_.round(from);
}

void PrecopyLinks::send(const GuestKey& from, PrecopySource& source) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    it->second.source = &source;
    it->second.limit =
        loop_.after(round_limit, [this, from] { end(from, "a round took too long"); });
    it->second.link->pump_soon();
}

void PrecopyLinks::round_later(const GuestKey& from) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    it->second.limit = loop_.after(round_again, [this, from] { handlers_.round(from); });
}

void PrecopyLinks::progress(Nanos now, std::vector<JobSend>& to) const {
    for (const auto& [from, s] : sending_) {
        if (!s.source) continue;
        const uint64_t sent = s.source->bytes_sent();
        to.push_back({from.id, from.epoch, s.node, sent, std::max(s.bytes, sent), now - s.began});
    }
}

void PrecopyLinks::end(const GuestKey& from, const std::string& why) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    const bool accepted = it->second.accepted;
    sending_.erase(it);
    (accepted ? handlers_.broken : handlers_.refused)(from, why);
}

// -------------------------------------------------------------------------------------------------
// destination

Status PrecopyLinks::frame(uint64_t connection, const NodeName& sender, const wire::Frame& f) {
    TRY_ASSIGN(const wire::PrecopyBegin begin, wire::unpack<wire::PrecopyBegin>(f.body));
    const GuestKey key{begin.id, begin.new_epoch};
    if (begin.sender != sender) return fail("memory of another sender");
    if (receiving_.contains(connection)) return fail("memory of one job a connection");
    for (const auto& [number, r] : receiving_)
        if (r.key == key) return fail("its memory comes already");
    if (auto may = handlers_.begin(key, sender, begin.bytes); !may) {
        loop_.defer([this, connection, key, why = may.error().message] {
            handlers_.answer(connection, {key.id, key.epoch, false, why});
        });
        return {};
    }
    Receiving& r = receiving_[connection];
    r.key = key;
    r.sections = std::make_unique<PageSections>(
        [this, connection](const PageRange& range, std::string_view bytes) {
            return section(connection, range, bytes);
        });
    handlers_.receive_raw(connection,
                          [this, connection](ByteView bytes) { receive(connection, bytes); });
    handlers_.state(connection, {});
    return {};
}

Status PrecopyLinks::section(uint64_t connection, const PageRange& range, std::string_view bytes) {
    Receiving& r = receiving_.at(connection);
    if (range.pages == 0) {
        handlers_.state(connection, {r.taken, false, {}});
        return {};
    }
    r.taken += bytes.size();
    return handlers_.take(r.key, range, bytes);
}

// How long it may be silent is the home's patience: between two rounds nothing comes.
void PrecopyLinks::receive(uint64_t connection, ByteView bytes) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end() || it->second.failed) return;
    const auto taken =
        it->second.sections->take({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (taken) return;
    it->second.failed = true;  // not here and now: its own bytes may be on the stack
    loop_.defer([this, connection, key = it->second.key, why = taken.error().message] {
        handlers_.answer(connection, {key.id, key.epoch, false, why});
        closed(connection);
    });
}

void PrecopyLinks::closed(uint64_t connection) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end()) return;
    const GuestKey key = it->second.key;
    receiving_.erase(it);
    handlers_.lost(key);
}

}  // namespace souk
