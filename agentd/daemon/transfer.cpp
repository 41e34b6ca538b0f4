// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/transfer.hpp"

#include "agentd/core/files_choice.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

constexpr Nanos transfer_stall_limit = Nanos::from_s(20);
constexpr uint64_t rate_from_bytes = 16 << 20;  // less says nothing about a link

}  // namespace

Transfers::Transfers(Loop& loop, BulkIdentity own, Handlers handlers)
    : loop_(loop), own_(std::move(own)), handlers_(std::move(handlers)) {}

// -------------------------------------------------------------------------------------------------
// source

void Transfers::reach(const GuestKey& from, const Peer& dest) {
    if (sending_.contains(from)) return;
    Sending& s = sending_[from];
    s.node = dest.node;
    s.address = dest.address;
    s.link = connect(from, dest);
}

void Transfers::forget_reached(const GuestKey& from) {
    if (const auto it = sending_.find(from); it != sending_.end() && !it->second.begun)
        sending_.erase(it);
}

std::unique_ptr<BulkSender> Transfers::connect(const GuestKey& from, const Peer& dest) {
    BulkSender::Handlers handlers;
    handlers.frame = [this, from](const wire::Frame& f) { sender_frame(from, f); };
    handlers.piece = [this, from] { return next_piece(sending_.at(from)); };
    handlers.sent = [this, from](size_t bytes) { piece_left(sending_.at(from), bytes); };
    handlers.hold = [this, from](std::string_view& p) { return hold(sending_.at(from), p); };
    // Behind an image the next word is the destination's, and the home's patience the limit.
    handlers.idle = [this, from] {
        if (const Sending& idle = sending_.at(from); idle.cargo.pages) idle.link->not_waiting();
    };
    handlers.ended = [this, from](const std::string& why) { end_sending(from, why); };
    return std::make_unique<BulkSender>(loop_, own_, dest, std::move(handlers));
}

void Transfers::send(const GuestKey& from, const GuestKey& to, const Peer& dest,
                     Result<Cargo> cargo, Done done) {
    const auto old = sending_.find(from);
    const bool reached = old != sending_.end() && !old->second.begun &&
                         old->second.node == dest.node && old->second.address == dest.address;
    Sending& s = reached ? old->second : sending_[from] = Sending{};
    s.begun = true;
    s.to = to;
    s.node = dest.node;
    s.done = std::move(done);
    const auto begin = [&]() -> Status {
        if (!cargo) return tl::unexpected(cargo.error());
        s.cargo = std::move(*cargo);
        s.share = RateShare(s.cargo.rate);
        TRY_ASSIGN(ImageReader reader,
                   ImageReader::open(s.cargo.image.get(), s.cargo.needs, s.cargo.disk_secret));
        s.reader = std::make_unique<ImageReader>(std::move(reader));
        s.bytes =
            image_bytes(s.cargo.image.get()) + (s.cargo.pages ? s.cargo.pages->bytes_total() : 0);
        wire::ImageBegin first{to.id, to.epoch, from.epoch, own_.node, s.cargo.form};
        if (!s.cargo.seal.key.empty()) {
            TRY_ASSIGN(s.cargo.seal.nonce, trust::random_bytes(StreamTag::nonce_bytes));
            first.nonce = trust::hex(s.cargo.seal.nonce);
        }
        if (!s.link) s.link = connect(from, dest);
        s.link->begin(wire::frame::image_begin, wire::pack(first));
        if (!s.welcomed) return {};
        TRY(begin_pieces(s));
        s.link->pump_soon();
        return {};
    };
    // The caller is in the middle of its own step: a failure is told after it.
    auto begun = begin();
    if (!begun) s.refused = image_is_refused(begun.error());
    if (!begun) loop_.defer([this, from, why = begun.error().message] { end_sending(from, why); });
}

// The destination is there, and has said what it can.
Status Transfers::begin_pieces(Sending& s) {
    s.began = Loop::now();
    if (s.cargo.home_locks && (s.knows & knows_home_locks) == 0)
        return fail("the job holds locks of its home's files, and " + s.node +
                    " is of an older version, where they would be nobody's");
    if (!s.tags || s.cargo.seal.key.empty()) return {};
    TRY_ASSIGN(StreamTag tag, StreamTag::make(s.cargo.seal));
    s.reader->tag_with(std::move(tag));
    return {};
}

// The image, and then what is wanted of the pages.
Result<std::string_view> Transfers::next_piece(Sending& s) {
    if (!s.image_sent) {
        auto piece = s.reader->piece();
        if (!piece) s.refused = image_is_refused(piece.error());
        if (!piece || !piece->empty()) return piece;
        s.image_sent = true;
    }
    if (!s.cargo.pages) return std::string_view{};
    return s.cargo.pages->piece();
}

bool Transfers::is_waited_for(const Sending& s) {
    return s.image_sent && s.cargo.pages && s.cargo.pages->is_waited_for();
}

Nanos Transfers::hold(Sending& s, std::string_view& piece) {
    if (is_waited_for(s)) return {};
    const Nanos now = Loop::now();
    const uint64_t room = s.share.room(piece.size(), now);
    if (room == 0) return std::max(s.share.wait(now), Nanos{1});
    piece = piece.substr(0, room);
    return {};
}

void Transfers::piece_left(Sending& s, size_t bytes) {
    s.bytes_sent += bytes;
    if (is_waited_for(s))
        s.share.went_at_once(bytes, Loop::now());
    else
        s.share.went(bytes);
    if (s.image_sent)
        s.cargo.pages->sent(bytes);
    else
        s.reader->sent(bytes);
}

void Transfers::sender_frame(const GuestKey& from, const wire::Frame& f) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    if (f.type == wire::frame::welcome) {
        Sending& s = it->second;
        const auto welcome = wire::unpack<wire::Welcome>(f.body);
        if (!welcome) return end_sending(from, welcome.error().message);
        s.welcomed = true;
        s.tags = welcome->tags;
        s.knows = welcome->knows;
        if (!s.begun) return s.link->not_waiting();
        if (const Status begun = begin_pieces(s); !begun)
            return end_sending(from, begun.error().message);
        return s.link->pump();
    }
    if (!it->second.begun) return end_sending(from, BulkSender::refusal(f));
    if (f.type == wire::frame::image_result) {
        const auto result = wire::unpack<wire::ImageResult>(f.body);
        if (result && result->ok) return sent(from);
        return end_sending(from, result ? result->why : result.error().message);
    }
    if (f.type == wire::frame::pages_state) {
        const auto state = wire::unpack<wire::PagesState>(f.body);
        return state ? wanted(from, *state) : end_sending(from, state.error().message);
    }
    end_sending(from, BulkSender::refusal(f));
}

void Transfers::wanted(const GuestKey& from, const wire::PagesState& state) {
    const Sending& s = sending_.at(from);
    const auto& pages = s.cargo.pages;
    if (!pages) return end_sending(from, "the destination wants pages that are in the image");
    for (const PageRange& wish : state.wishes) pages->wish(wish);
    if (state.restored) pages->acknowledged(state.put);
    s.link->pump();
}

void Transfers::end_sending(const GuestKey& from, const std::string& why) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    const auto done = std::move(it->second.done);
    const bool refused = it->second.refused;
    sending_.erase(it);
    const std::string text = "send the image: " + why;
    if (done) done(refused ? refuse_image(text) : fail(text));  // else send() connects anew
}

void Transfers::sent(const GuestKey& from) {
    const auto it = sending_.find(from);
    // Its answer may be here before the word that the last piece has left.
    if (!it->second.image_sent) (void)next_piece(it->second);
    if (!it->second.image_sent)
        return end_sending(from, "the destination says it has what was not sent");
    const Manifest manifest = it->second.reader->manifest();
    const Sending& s = it->second;
    const uint64_t bytes = manifest.bytes() + (s.cargo.pages ? s.cargo.pages->bytes_total() : 0);
    // A transfer that was held back says nothing about the link.
    if (const Nanos took = Loop::now() - s.began;
        bytes >= rate_from_bytes && took.ns > 0 && !s.share.limited())
        rates_[s.node] = static_cast<double>(bytes) / static_cast<double>(took.ns) * 1e9;
    const auto done = std::move(it->second.done);
    sending_.erase(it);
    done(manifest);
}

double Transfers::bytes_per_s(const NodeName& node) const {
    const auto it = rates_.find(node);
    return it == rates_.end() ? 0 : it->second;
}

void Transfers::progress(Nanos now, std::vector<JobSend>& to) const {
    for (const auto& [from, s] : sending_)
        if (s.welcomed && s.reader)
            to.push_back({from.id, from.epoch, s.node, std::min(s.bytes_sent, s.bytes), s.bytes,
                          now - s.began});
}

void Transfers::cancel_sending(const GuestKey& from) { sending_.erase(from); }

// -------------------------------------------------------------------------------------------------
// destination

Status Transfers::frame(uint64_t connection, const NodeName& sender, const wire::Frame& f) {
    if (f.type == wire::frame::image_begin) {
        TRY_ASSIGN(const wire::ImageBegin begin, wire::unpack<wire::ImageBegin>(f.body));
        return begin_receiving(connection, sender, begin);
    }
    return fail("a sender of images does not send frames of type " +
                std::to_string(static_cast<int>(f.type)));
}

void Transfers::receive(uint64_t connection, ByteView bytes) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end()) return;
    it->second.stall = loop_.after(transfer_stall_limit, [this, connection] {
        give_up_receiving(connection, "the source sends no more of the image");
    });
    if (auto taken = receive_some(connection, it->second,
                                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        !taken)
        give_up_receiving(connection, taken.error().message);
}

Status Transfers::receive_some(uint64_t connection, Receiving& r, std::string_view bytes) {
    if (!r.pages) {
        TRY_ASSIGN(bytes, r.writer->take_to_end(bytes));
        if (!r.writer->done()) return {};
        // pages come when they are asked for
        if (!bytes.empty()) return fail("image stream: bytes after its end");
        return image_is_here(connection, r);
    }
    return r.pages->take(bytes);
}

Status Transfers::begin_receiving(uint64_t connection, const NodeName& sender,
                                  const wire::ImageBegin& begin) {
    const GuestKey key{begin.id, begin.new_epoch};
    if (begin.sender != sender) return fail(CauseCode::not_allowed, "an image of another sender");
    if (receiving_.contains(connection))
        return fail(CauseCode::not_allowed, "one image a connection");
    if (!handlers_.expects(key, sender))
        return fail(CauseCode::not_allowed,
                    "no image is expected for " + key.text() + " from " + sender);
    TRY_ASSIGN(Place place, handlers_.place(key));
    TRY_ASSIGN(ImageWriter writer, ImageWriter::open(place.image.get(), place.bytes_max));
    if (place.key) writer.encrypt_with(std::move(place.key));
    // A source of a version before tags has no nonce; who may be the source, the home says.
    ImageSeal seal = handlers_.seal(key, sender, begin.from_epoch);
    if (!seal.key.empty() && !begin.nonce.empty()) {
        TRY_ASSIGN(seal.nonce, trust::from_hex(begin.nonce));
        TRY_ASSIGN(StreamTag tag, StreamTag::make(seal));
        writer.want_tag(std::move(tag));
    }
    Receiving r;
    r.key = key;
    r.form = begin.form;
    r.writer = std::make_unique<ImageWriter>(std::move(writer));
    r.stall = loop_.after(transfer_stall_limit, [this, connection] {
        give_up_receiving(connection, "the source sends no image");
    });
    receiving_.emplace(connection, std::move(r));
    handlers_.receive_raw(connection,
                          [this, connection](ByteView bytes) { receive(connection, bytes); });
    return {};
}

Status Transfers::image_is_here(uint64_t connection, Receiving& r) {
    const GuestKey key = r.key;
    const MoveForm form = r.form;
    const Manifest manifest = r.writer->manifest();
    if (form != MoveForm::stop_and_copy) {
        r.stall.cancel();  // until it wants pages
        r.pages = std::make_unique<PageSections>(
            [this, key](const PageRange& range, std::string_view bytes) -> Status {
                return range.pages == 0 ? Status{} : handlers_.pages(key, range, bytes);
            });
    }
    TRY(handlers_.received(key, manifest, form));  // may end r
    if (form == MoveForm::stop_and_copy) end_receiving(connection);
    return {};
}

void Transfers::end_receiving(uint64_t connection) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end()) return;
    const GuestKey key = it->second.key;
    // Not here and now: its own bytes may be on the stack.
    loop_.defer(
        [this, connection, key, ended = std::make_shared<Receiving>(std::move(it->second))] {
            handlers_.answer(connection, {key.id, key.epoch, true, ""});
        });
    receiving_.erase(it);
}

uint64_t Transfers::receiving_pages(const GuestKey& key) const {
    for (const auto& [connection, r] : receiving_)
        if (r.key == key && r.pages) return connection;
    return 0;
}

void Transfers::want(const GuestKey& key, const wire::PagesState& state) {
    const uint64_t connection = receiving_pages(key);
    if (connection == 0) return;
    Receiving& r = receiving_.at(connection);
    if (state.restored || !state.wishes.empty())
        r.stall = loop_.after(transfer_stall_limit, [this, connection] {
            give_up_receiving(connection, "the source sends no more pages");
        });
    handlers_.want(connection, state);
}

void Transfers::whole(const GuestKey& key) {
    if (const uint64_t connection = receiving_pages(key)) end_receiving(connection);
}

void Transfers::refuse(const GuestKey& key, const std::string& why) {
    const uint64_t connection = receiving_pages(key);
    if (connection == 0) return;
    const auto it = receiving_.find(connection);
    loop_.defer(
        [this, connection, key, why, ended = std::make_shared<Receiving>(std::move(it->second))] {
            handlers_.answer(connection, {key.id, key.epoch, false, why});
        });
    receiving_.erase(it);
}

void Transfers::give_up_receiving(uint64_t connection, const std::string& why) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end()) return;
    const GuestKey key = it->second.key;
    // its own bytes may be on the stack
    const auto ended = std::make_shared<Receiving>(std::move(it->second));
    receiving_.erase(it);
    handlers_.failed(key, "receive its image: " + why);
    loop_.defer([this, connection, key, why, ended] {
        handlers_.answer(connection, {key.id, key.epoch, false, why});
    });
}

void Transfers::closed(uint64_t connection) {
    give_up_receiving(connection, "the connection broke");
}

}  // namespace souk
